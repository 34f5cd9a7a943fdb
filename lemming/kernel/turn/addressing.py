"""The readers of an agent's entries, and targets of entries that name no agent."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from lemming.kernel.agents import Agent, Survey
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.turn.forms.reply_form import MOST_READERS

MAX_LISTED = 20
_RESUME = re.compile(r"agents/([^/]+)/resume\.json")


def find_unknown_targets(entry: OutboxEntry, everyone: Collection[str], written_paths: Iterable[str]) -> dict[str, str]:
    """Return a remark for each target of an entry that names no agent, by name.

    `everyone`: names of the agents at the start of the tick. `written`: files that the turn writes, which may
    create agents.
    """
    if not entry.targets:
        return {}
    created = [match[1] for path in written_paths if (match := _RESUME.fullmatch(path))]
    names_by_lower = {name.lower(): name for name in (*everyone, *created)}
    unknown = sorted(entry.targets - names_by_lower.keys() - {entry.agent})
    return {name: _describe_unknown(name, sorted({*names_by_lower.values()} - {entry.agent})) for name in unknown}


def _describe_unknown(name: str, names: list[str]) -> str:
    listed = f"agents: {', '.join(names)}" if 0 < len(names) <= MAX_LISTED else ""
    hint = did_you_mean(name, names) or listed
    return f'there is no agent "{name[:100]}"{f": {hint}" if hint else ""}'


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
