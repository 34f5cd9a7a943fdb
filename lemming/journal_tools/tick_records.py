"""The records of a tick, indexed by content, and the reply of a model as a journal has it."""

from __future__ import annotations

from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState, ProviderError, restore_error
from lemming.kernel.base.turn_numbers import list_turn_keys
from lemming.kernel.journal.journal_parser import find_tick_started
from lemming.kernel.journal.journal_records import (
    EntriesExpired,
    GateAsked,
    ModelFailed,
    ModelReplied,
    Record,
    TickCommitted,
    TickStarted,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    TurnTold,
)
from lemming.kernel.journal.tick_plan import FOR_OTHERS, TickPlan
from lemming.kernel.providers import Reply


class TickRecords:
    """The records of a tick, indexed by content. A tick without records has not begun.

    `started` and `ended` are keyed by turn key: the agent's name, and `name#1` for the agent's next turn in the tick.
    `engine_starts` is the number of engines that worked on the tick: more than 1 means interruptions.
    """

    def __init__(self, tick: int = -1, records: list[Record] | None = None, *, engine_starts: int = 1) -> None:
        self.tick, self.records, self.engine_starts = tick, records or [], engine_starts
        self.started: dict[str, TurnStarted] = {}
        self.ended: dict[str, TurnEnded] = {}
        self.answers: dict[tuple[str, int], ModelReplied | ModelFailed] = {}
        self.tools: dict[tuple[str, int], ToolFinished] = {}
        self.announced: dict[tuple[str, int], ToolStarted] = {}
        self.checked: dict[tuple[str, int], GateAsked] = {}
        self.urgent: dict[tuple[str, int], TurnTold] = {}
        self.expired: list[str] = []
        self.unread: dict[str, int] = {}
        self._records_by_turn: dict[str, list[Record]] = {}
        for record in self.records:
            self._index_record(record)

    def _index_record(self, record: Record) -> None:
        self._records_by_turn.setdefault(record.turn_key, []).append(record)
        match record:
            case TurnStarted():
                self.started[record.turn_key] = record
            case TurnEnded():
                self.ended[record.turn_key] = record
            case ModelReplied() | ModelFailed():
                self.answers[record.agent, record.call] = record
            case ToolStarted():
                self.announced[record.agent, record.index] = record
            case ToolFinished():
                self.tools[record.agent, record.index] = record
            case GateAsked():
                self.checked[record.agent, record.number] = record
            case TurnTold():
                self.urgent[record.agent, record.call] = record
            case EntriesExpired():
                self.expired, self.unread = record.files, record.unread

    def turn_records(self, key: str) -> list[Record]:
        """Return the records of a turn."""
        return self._records_by_turn.get(key, [])

    @property
    def turn_keys(self) -> list[str]:
        """The keys of the tick's turns in order, including turns not yet begun."""
        return [
            key for name in self.start_record.order for key in list_turn_keys(name, self._records_by_turn) or [name]
        ]

    @property
    def start_record(self) -> TickStarted:
        """The first record. Raises `CorruptState` if there is none because the journal was emptied."""
        started = find_tick_started(self.records)
        if started is None:
            hint = "find the damage with `lemming verify`; a backup or the history may have the file"
            raise CorruptState("the journal has no record", where=paths.journal_file(self.tick), hint=hint)
        return started

    @property
    def commit_record(self) -> TickCommitted | None:
        """The last record of a committed tick, or None."""
        last = self.records[-1] if self.records else None
        return last if isinstance(last, TickCommitted) else None

    @property
    def plan(self) -> TickPlan:
        """The plan of the tick."""
        return TickPlan.from_record(self.start_record)

    @property
    def people(self) -> frozenset[str]:
        """The agents with a person or a channel in their place."""
        return frozenset(name for name, reason in self.start_record.skipped.items() if reason in FOR_OTHERS)


def to_reply(record: ModelReplied | ModelFailed) -> Reply:
    """Return the reply in a journal record, or raise the error in the record."""
    if isinstance(record, ModelFailed):
        failure = restore_error(record.error, record.message)
        failure.verdicts = record.verdicts
        if isinstance(failure, ProviderError):
            failure.is_retryable = False
        raise failure
    values = {name: getattr(record, name) for name in _SAME_IN_REPLY}
    return Reply(**values, calls=tuple(record.calls), written_tokens=record.written_tokens or None)


_SAME_IN_REPLY = (
    *("text", "thinking", "finish", "model", "key", "at", "batched", "acted", "kept"),
    *("input_tokens", "output_tokens", "cached_tokens"),
)
