"""Undelivered entries for a channel's agent: a view of outboxes and of the channel's log.

Delivered are entries with the agent in `payload.target`, and each `response` to an entry of the agent, from
finished ticks and from readable authors. An entry is read once; no other state is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lemming.capabilities.channels.channel import OutgoingEntry
from lemming.capabilities.channels.channel_log import ChannelLogs
from lemming.kernel.agents import Agent, Survey
from lemming.kernel.base import paths
from lemming.kernel.inboxes.entry_index import EntryIndex, EntryNames
from lemming.kernel.messages import EntryName, OutboxEntry
from lemming.kernel.obligations.request_payloads import parse_references
from lemming.kernel.org.organisation import Organisation


class _AddressedState:
    """Scan state of a channel: the names of each author, and the entries found."""

    def __init__(self) -> None:
        self.names: dict[str, EntryNames] = {}
        self.examined: dict[str, set[EntryName]] = {}
        self.pending: dict[EntryName, OutgoingEntry] = {}


class AddressedEntries:
    """Undelivered entries of an organisation: `org.own(AddressedEntries)`. Not thread-safe."""

    def __init__(self, org: Organisation) -> None:
        self._index, self._logs = org.get_cache(EntryIndex), org.get_cache(ChannelLogs)
        self._states: dict[str, _AddressedState] = {}

    def find_pending(self, agent: Agent, survey: Survey, tick: int) -> Sequence[OutgoingEntry]:
        """Return the undelivered entries of a channel from ticks before `tick`, oldest first."""
        state = self._states.setdefault(agent.name, _AddressedState())
        settled = self._logs.get_log(agent.name).history.settled
        own_names = self._index.list_outbox(agent.name)
        for author in _readable_authors(agent, survey):
            names = self._index.list_outbox(author)
            if state.names.get(author) is not names:
                is_complete = self._scan_author(agent, author, names, tick, state, own_names)
                if is_complete:
                    state.names[author] = names
        for name in [name for name in state.pending if name.identity in settled]:
            del state.pending[name]
        return [state.pending[name] for name in sorted(state.pending)]

    def _scan_author(
        self, agent: Agent, author: str, names: EntryNames, tick: int, state: _AddressedState, own_names: EntryNames
    ) -> bool:
        """Record the new entries of an author. Return True if all entries could be read."""
        is_complete, examined = True, state.examined.get(author, set()).intersection(names.all)
        state.examined[author] = examined
        for name in names.all:
            if name in examined:
                continue
            entry = self._index.read(name) if name.tick < tick else None
            if not isinstance(entry, OutboxEntry):
                is_complete = False
                continue
            examined.add(name)
            if outgoing := self._to_outgoing(agent, entry, own_names):
                state.pending[name] = outgoing
        return is_complete

    def _to_outgoing(self, agent: Agent, entry: OutboxEntry, own_names: EntryNames) -> OutgoingEntry | None:
        answers = self._find_answered(entry, own_names) if entry.kind == "response" else None
        if answers is None and agent.name not in entry.targets:
            return None
        return OutgoingEntry(entry, answers)

    def _find_answered(self, entry: OutboxEntry, own_names: EntryNames) -> OutboxEntry | None:
        """Return the entry answered by a response, or None."""
        references = parse_references(entry.payload.get("reply_to"))
        if not references:
            return None
        name = next((name for name in own_names.all if name.id in references or name.identity in references), None)
        request_entry = self._index.read(name) if name else None
        return request_entry if isinstance(request_entry, OutboxEntry) else None


def _readable_authors(agent: Agent, survey: Survey) -> Iterator[str]:
    """Yield the authors readable by a channel's agent, by name."""
    patterns = agent.permissions.read_outboxes
    readable_names = {*survey.agents, *survey.broken} if "*" in patterns else set(patterns) & {*survey.agents}
    yield from sorted(name for name in readable_names - {agent.name} if paths.AGENT_NAME.match(name))
