"""Urgent entries: messages of persons that reach an agent during a running turn.

The turn looks for messages before each model call but the first. A message is recorded before the call, and a repeated
turn reads only the record. Any other entry stays unread, for the agent's next turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from lemming.kernel.base.errors import StoppedByGate
from lemming.kernel.inboxes.entry_index import EntryIndex, EntryNames
from lemming.kernel.inboxes.reader_view import ReaderView
from lemming.kernel.journal.journal_file import Journal
from lemming.kernel.journal.journal_records import TurnTold
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick_context import TickContext
from lemming.kernel.turn.forms.form_user_message import describe_entry
from lemming.kernel.turn.preparation import TurnContext
from lemming.kernel.turn.preparation_chain import PreparationChain, prepare_context
from lemming.kernel.turn.preparation_effects import ReceiveEntry, ShowEntry
from lemming.kernel.turn.turn_values import TurnInputs

URGENT = "urgent"
"""Key of a payload: true for a message that is shown to a running turn."""
MAX_NEW_NAMES = 64
"""Number of newest unread names of an outbox that are looked at."""


class UrgentEntries:
    """The urgent entries of persons that one turn has not shown."""

    def __init__(self, runtime: Runtime, journal: Journal, tick_context: TickContext, inputs: TurnInputs) -> None:
        self._runtime, self._journal, self._tick_context, self._inputs = runtime, journal, tick_context, inputs
        self._mark, self._index = inputs.read, tick_context.org.get_cache(EntryIndex)
        self._persons = [name for name in tick_context.mail.persons if inputs.agent.may_read(name)]
        self._listed: dict[str, EntryNames] = {}
        records = journal.find_agent_records(inputs.agent.name, inputs.turn)
        self._records = {record.call: record for record in records if isinstance(record, TurnTold)}

    def take_lines(self, call: int, trust_label: str, *, is_answered: bool) -> Mapping[str, str]:
        """Return the lines to show before model call number `call`, by entry: recorded, or found now and recorded.

        `trust_label`: label of the turn so far, empty without trust tracking. `is_answered`: the answer is recorded.
        """
        name = self._inputs.agent.name
        if call in self._records:
            return self._records[call].entries
        # The question of an answered call, and of one in a batch that was sent, has no other content any more.
        if is_answered or (
            self._runtime.batcher and any((name, call) in record.submitted_calls for record in self._journal.records)
        ):
            return {}
        lines = self._runtime.find_urgent(name, call, lambda: self._find_lines(trust_label))
        if not lines:
            return {}
        self._records[call] = self._journal.append(TurnTold(agent=name, call=call, entries={**lines}))
        return self._records[call].entries

    def _find_lines(self, trust_label: str) -> dict[str, str]:
        shown = {identity for record in self._records.values() for identity in record.entries}
        lines, room = dict[str, str](), self._tick_context.config.org.inbox_limit
        for entry in self._iter_new_entries():
            if entry.identity not in shown and len(lines) < room and self._is_allowed(entry, trust_label):
                labels = self._chain.labels
                lines[entry.identity] = describe_entry(entry, labels) if self._inputs.form else labels.line(entry)
        if len(lines) == room:
            self._listed.clear()  # the next look finds the others
        return lines

    def _iter_new_entries(self) -> Iterator[OutboxEntry]:
        """Yield the unread urgent messages to the agent in outboxes that changed since the last look."""
        agent, at = self._inputs.agent.name, self._tick_context.mail.at
        for person in self._persons:
            names = self._index.list_outbox(person)
            if names is self._listed.get(person):
                continue
            self._listed[person] = names
            newer = names.all[names.next_index(self._mark.last_seen_tick(person)) :]
            candidates = {*names.by_hand[-MAX_NEW_NAMES:], *newer[-MAX_NEW_NAMES:]}
            for name in sorted(name for name in candidates if not self._mark.has_seen(name)):
                entry = self._index.read(name)
                # Requests and answers have turns of their own.
                if (
                    not isinstance(entry, OutboxEntry)
                    or entry.kind != "message"
                    or entry.payload.get(URGENT) is not True
                ):
                    continue
                if agent in entry.targets and entry.not_before <= at:
                    yield entry

    def _is_allowed(self, entry: OutboxEntry, trust_label: str) -> bool:
        """Return True if a turn that begins now would show the entry unchanged, with no less trust."""
        labels = self._chain.labels
        # The label of a turn is recorded as it begins: an entry that would lower it waits. So do traced values.
        if (label := labels.entry_trust(entry)) and (
            not trust_label or entry.tags or labels.lowest_trust((label, trust_label)) != trust_label
        ):
            return False
        try:
            received = self._chain.decide(ReceiveEntry(entry=entry, labels=labels))
            shown = self._chain.decide(ShowEntry(entry=entry, part="unread", labels=labels))
        except StoppedByGate:
            return False
        return isinstance(received, ReceiveEntry) and isinstance(shown, ShowEntry) and shown.entry == entry

    @cached_property
    def _chain(self) -> PreparationChain:
        """The capabilities that decide about inputs, as for a turn that begins now."""
        inputs, tick_context = self._inputs, self._tick_context
        view = ReaderView(tick_context.mail, inputs.agent, inputs.state.read)
        return prepare_context(
            TurnContext(tick_context, inputs.agent, inputs.model, inputs.state, view, inputs.allocation)
        )
