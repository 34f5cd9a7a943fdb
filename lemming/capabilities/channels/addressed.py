"""What is addressed to a channel's agent and has not gone out: a view of outboxes and of the channel's log.

Goes out: an entry whose `payload.target` names the agent, and a `response` to an entry that it wrote, of
ticks that are over, by authors whom the agent may read. An entry is read once; nothing else is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lemming.capabilities.channels.channel import Outgoing
from lemming.capabilities.channels.log import ChannelLogs
from lemming.kernel.agents import Agent, Survey
from lemming.kernel.base import paths
from lemming.kernel.mail.index import EntryIndex, Names
from lemming.kernel.mail.references import named_in
from lemming.kernel.messages import EntryName, OutboxEntry
from lemming.kernel.org.organisation import Organisation


class _Looked:
    """What was looked at for one channel: the names of each author, and which entries are for it."""

    def __init__(self) -> None:
        self.names: dict[str, Names] = {}
        self.seen: dict[str, set[EntryName]] = {}
        self.pending: dict[EntryName, Outgoing] = {}


class Addressed:
    """What is to go out, of one organisation: `org.own(Addressed)`, for one thread at a time."""

    def __init__(self, org: Organisation) -> None:
        self._index, self._logs = org.own(EntryIndex), org.own(ChannelLogs)
        self._looked: dict[str, _Looked] = {}

    def pending(self, agent: Agent, survey: Survey, tick: int) -> Sequence[Outgoing]:
        """Return what is to go out of a channel, of ticks before `tick`, oldest first."""
        looked = self._looked.setdefault(agent.name, _Looked())
        settled = self._logs.of(agent.name).traffic.settled
        own = self._index.outbox(agent.name)
        for author in _readable(agent, survey):
            names = self._index.outbox(author)
            if looked.names.get(author) is not names:
                is_whole = self._look(agent, author, names, tick, looked, own)
                if is_whole:
                    looked.names[author] = names
        for name in [name for name in looked.pending if name.identity in settled]:
            del looked.pending[name]
        return [looked.pending[name] for name in sorted(looked.pending)]

    def _look(self, agent: Agent, author: str, names: Names, tick: int, looked: _Looked, own: Names) -> bool:
        """Take note of what is new among an author's entries; return whether all could be looked at."""
        is_whole, seen = True, looked.seen.get(author, set()).intersection(names.all)
        looked.seen[author] = seen
        for name in names.all:
            if name in seen:
                continue
            entry = self._index.read(name) if name.tick < tick else None
            if not isinstance(entry, OutboxEntry):
                is_whole = False
                continue
            seen.add(name)
            if outgoing := self._outgoing(agent, entry, own):
                looked.pending[name] = outgoing
        return is_whole

    def _outgoing(self, agent: Agent, entry: OutboxEntry, own: Names) -> Outgoing | None:
        answers = self._answered(entry, own) if entry.kind == "response" else None
        if answers is None and agent.name not in entry.targets:
            return None
        return Outgoing(entry, answers)

    def _answered(self, entry: OutboxEntry, own: Names) -> OutboxEntry | None:
        """Return the entry of the channel's agent that an entry is the response to."""
        asked = named_in(entry.payload.get("reply_to"))
        if not asked:
            return None
        name = next((name for name in own.all if name.id in asked or name.identity in asked), None)
        found = self._index.read(name) if name else None
        return found if isinstance(found, OutboxEntry) else None


def _readable(agent: Agent, survey: Survey) -> Iterator[str]:
    """Yield the authors that a channel's agent may read, in the order of their names."""
    patterns = agent.permissions.read_outboxes
    known = {*survey.agents, *survey.broken} if "*" in patterns else set(patterns) & {*survey.agents}
    yield from sorted(name for name in known - {agent.name} if paths.AGENT_NAME.match(name))
