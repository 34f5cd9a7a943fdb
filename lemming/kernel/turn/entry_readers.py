"""Readers of an agent's outbox: the agents with access to the messages."""

from __future__ import annotations

from collections.abc import Mapping

from lemming.kernel.agents import Agent, Survey
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.turn.forms.turn_actions import MOST_READERS


class Readers:
    """Readers of each agent's outbox, cached as long as the agents are identical."""

    def __init__(self, _: Organisation) -> None:
        self._agents: Mapping[str, Agent] = {}
        self._readers_of_all: list[str] = []
        self._by_author: dict[str, list[str]] = {}
        self._cache: dict[str, tuple[str, ...] | None] = {}

    def list_readers(self, author: str, survey: Survey) -> tuple[str, ...] | None:
        """Return the sorted readers of an agent's outbox, or None for more than `MOST_READERS`."""
        if survey.agents is not self._agents:
            self._index(survey.agents)
        if author not in self._cache:
            self._cache[author] = self._find(author)
        return self._cache[author]

    def _find(self, author: str) -> tuple[str, ...] | None:
        direct_readers = self._by_author.get(author, [])
        max_readers = MOST_READERS + 1  # the author may read all outboxes too
        if len(self._readers_of_all) + len(direct_readers) > max_readers:
            return None
        readers = tuple(sorted({*self._readers_of_all, *direct_readers} - {author}))
        return readers if len(readers) <= MOST_READERS else None

    def _index(self, agents: Mapping[str, Agent]) -> None:
        self._agents, self._readers_of_all, self._by_author, self._cache = agents, [], {}, {}
        for name, agent in agents.items():
            patterns = agent.permissions.read_outboxes
            if "*" in patterns:
                self._readers_of_all.append(name)
                continue
            for author in patterns:
                self._by_author.setdefault(author, []).append(name)
