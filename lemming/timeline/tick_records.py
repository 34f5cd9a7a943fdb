"""The records of one tick, by what they tell."""

from __future__ import annotations

from lemming.kernel.base.errors import CorruptState
from lemming.kernel.base.paths import journal_file
from lemming.kernel.base.turn_numbers import keys_of
from lemming.kernel.journal.lookup import plan_in
from lemming.kernel.journal.records import (
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
)
from lemming.kernel.tick.firing_plan import FOR_OTHERS, Plan


class TickRecords:
    """The records of one tick by what they tell. One without records has not begun.

    `started` and `ended` are by the key of the turn: the agent's name, and `name#1` for its next in the tick.
    `engine_starts` counts the engines that worked on it: more than one means interruptions.
    """

    def __init__(
        self, tick: int = -1, records: list[Record] | None = None, *, engine_starts: int = 1
    ) -> None:
        self.tick, self.records, self.engine_starts = tick, records or [], engine_starts
        self.started: dict[str, TurnStarted] = {}
        self.ended: dict[str, TurnEnded] = {}
        self.answers: dict[tuple[str, int], ModelReplied | ModelFailed] = {}
        self.tools: dict[tuple[str, int], ToolFinished] = {}
        self.announced: dict[tuple[str, int], ToolStarted] = {}
        self.checked: dict[tuple[str, int], GateAsked] = {}
        self.expired: list[str] = []
        self.unread: dict[str, int] = {}
        self._about: dict[str, list[Record]] = {}
        for record in self.records:
            self._note(record)

    def _note(self, record: Record) -> None:
        self._about.setdefault(record.turn_key, []).append(record)
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
            case EntriesExpired():
                self.expired, self.unread = record.files, record.unread

    def records_of(self, key: str) -> list[Record]:
        """Return the records of one turn."""
        return self._about.get(key, [])

    @property
    def turn_keys(self) -> list[str]:
        """The keys of its turns in their order, those that have not begun among them."""
        return [key for name in self.begin.order for key in keys_of(name, self._about) or [name]]

    @property
    def begin(self) -> TickStarted:
        """Its first record. Raises `CorruptState` where there is none: somebody has emptied the journal."""
        started = plan_in(self.records)
        if started is None:
            hint = "`lemming verify` names what is damaged; a backup or the history may have it whole"
            raise CorruptState("the journal holds no record", where=journal_file(self.tick), hint=hint)
        return started

    @property
    def end(self) -> TickCommitted | None:
        """Its last record, if the tick is over."""
        last = self.records[-1] if self.records else None
        return last if isinstance(last, TickCommitted) else None

    @property
    def plan(self) -> Plan:
        """The plan it was run by."""
        return Plan.of(self.begin)

    @property
    def people(self) -> frozenset[str]:
        """The agents for which a person or a channel spoke."""
        return frozenset(name for name, why in self.begin.skipped.items() if why in FOR_OTHERS)
