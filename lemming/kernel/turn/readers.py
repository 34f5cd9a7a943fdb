"""The agents that may read what an agent writes: whom its messages can reach."""

from __future__ import annotations

from collections.abc import Mapping

from lemming.kernel.agents import Agent, Survey
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.turn.forms.own_actions import MOST_READERS


class Readers:
    """The readers of each agent's outbox, as long as the agents are the very same."""

    def __init__(self, _: Organisation) -> None:
        self._agents: Mapping[str, Agent] = {}
        self._of_all: list[str] = []
        self._by_author: dict[str, list[str]] = {}
        self._known: dict[str, tuple[str, ...] | None] = {}

    def list_of(self, author: str, survey: Survey) -> tuple[str, ...] | None:
        """Return the readers of an agent's outbox, sorted; None where they are more than `MOST_READERS`."""
        if survey.agents is not self._agents:
            self._index(survey.agents)
        if author not in self._known:
            self._known[author] = self._find(author)
        return self._known[author]

    def _find(self, author: str) -> tuple[str, ...] | None:
        of_author = self._by_author.get(author, [])
        most = MOST_READERS + 1  # the author may be one of those who read all
        if len(self._of_all) + len(of_author) > most:
            return None
        readers = tuple(sorted({*self._of_all, *of_author} - {author}))
        return readers if len(readers) <= MOST_READERS else None

    def _index(self, agents: Mapping[str, Agent]) -> None:
        self._agents, self._of_all, self._by_author, self._known = agents, [], {}, {}
        for name, agent in agents.items():
            patterns = agent.permissions.read_outboxes
            if "*" in patterns:
                self._of_all.append(name)
                continue
            for author in patterns:
                self._by_author.setdefault(author, []).append(name)
