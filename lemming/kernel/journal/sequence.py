"""What makes a line of a journal one to believe: it is a record, and it stands where such a one may. Pure."""

from __future__ import annotations

from functools import cache, partial

from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, CorruptState
from lemming.kernel.base.turn_numbers import TURNS_PER_TICK, turn_key
from lemming.kernel.files.fields import Check, Count, Json, check_of, schema_of, shown
from lemming.kernel.journal.prompts import NoPrompt, PromptReader, SpelledOut, is_referring, referring_schema
from lemming.kernel.journal.records import (
    RECORDS,
    ModelFailed,
    ModelReplied,
    ModelReserved,
    Record,
    TickCommitted,
    TickStarted,
    ToolFinished,
    ToolStarted,
    TurnAnswered,
    TurnCommitted,
    TurnResumed,
    TurnStarted,
    kind_of,
)
from lemming.kernel.journal.turn_start import why_no_start

_WITHIN_A_TURN = (
    TurnResumed, ModelReserved, ModelReplied, ModelFailed, ToolStarted, ToolFinished, TurnAnswered,
)  # fmt: skip
"""What may stand in a journal only after its agent's `turn_started`, as those of capabilities may."""


class NoRecord(ValueError):
    """A line is no record that this engine writes, or cannot stand where it stands."""


def record_of(plain: Json) -> Record:
    """Return the record that a line holds; raise `NoRecord` for what is none.

    >>> record_of({"type": "turn_resumed", "epoch": 2, "agent": "../x"})
    Traceback (most recent call last):
    lemming.kernel.journal.sequence.NoRecord: turn_resumed /agent: "../x" is not one that is allowed here
    """
    name = plain.get("type")
    try:
        kind = kind_of(name) if isinstance(name, str) else None
    except ConfigError as error:
        raise NoRecord(f"{name}: {error.message}") from error
    if kind is None:
        raise NoRecord(f"{shown(name)} is no kind of record that this version knows")
    if wrong := _check_of(kind.kind, is_referring(plain))(plain):
        raise NoRecord(f"{name} {wrong}")
    return kind.from_json(plain)


@cache
def _check_of(name: str, refers: bool = False) -> Check:
    kind = kind_of(name)
    assert kind, name
    schema = referring_schema() if refers else kind.json_schema()
    schema["properties"] |= {"epoch": schema_of(Count)}
    schema["required"] = ["epoch", *schema["required"]]
    return check_of(schema)


class Sequence:
    """The records of one journal as they follow each other."""

    def __init__(self, tick: int) -> None:
        self._tick, self._line = tick, 0
        self._order: frozenset[str] | None = None
        self._started: set[str] = set()
        self._is_over = False

    def take(self, plain: Json, prompts: PromptReader, here: SpelledOut) -> Record:
        """Return the next record; raise `NoRecord` for what is none, or cannot stand here.

        `here` takes what it spells out, and `prompts` fetches what it refers to.
        """
        self._line += 1
        record = record_of(plain)
        if why := self._why_misplaced(record):
            raise NoRecord(why)
        if not isinstance(record, TurnStarted):
            return record
        here.take(plain)
        # Fetched when it is asked for: most who read a journal never look at a prompt.
        if is_referring(plain):
            return TurnStarted.from_json(
                plain, partial(_fetched, plain, self._tick, self._line, prompts, here)
            )
        if why := why_no_start(record):
            raise NoRecord(why)
        return record

    def _why_misplaced(self, record: Record) -> str:
        if self._order is None and isinstance(record, TickStarted):
            if record.tick != self._tick:
                return f"the journal of tick {self._tick} is that of tick {record.tick}; rename it"
            self._order = frozenset(record.order)
            return ""
        if self._order is None or isinstance(record, TickStarted):
            return f"a journal begins with one tick_started; {record.kind} cannot stand here"
        if self._is_over:
            return f"{record.kind} follows the end of the tick"
        self._is_over = isinstance(record, TickCommitted)
        concerned = [record.about] if record.about else [name for name, _ in record.sent_calls]
        for name in concerned:
            if name not in self._order:
                return f'{record.kind}: "{name}" takes no turn in this tick'
        return self._why_no_turn(record)

    def _why_no_turn(self, record: Record) -> str:
        match record:
            case TurnStarted(agent=agent, turn=turn):
                if record.turn_key in self._started:
                    return f"turn_started: the turn of {agent} begins twice"
                if turn and turn_key(agent, turn - 1) not in self._started:
                    return f"turn_started: turn {turn} of {agent} begins before turn {turn - 1}"
                if turn >= TURNS_PER_TICK:
                    return f"turn_started: turn must be below {TURNS_PER_TICK}, got {turn}"
                self._started.add(record.turn_key)
                return ""
            case TurnCommitted(state=dict() as state) if state["tick"] != self._tick:
                return f"turn_committed /state/tick: {state['tick']} is not the tick of this journal"
            # A turn that fails before it begins has an end and no beginning.
            case TurnCommitted(report=report):
                has_worked = report.status != "failed"
            case _:
                is_further = bool(record.about) and record.kind not in RECORDS
                has_worked = isinstance(record, _WITHIN_A_TURN) or is_further
        if has_worked and record.turn_key not in self._started:
            return f"{record.kind}: the turn of {record.about} has not begun"
        return ""


def _fetched(plain: Json, tick: int, line: int, prompts: PromptReader, here: SpelledOut) -> Json:
    """Return what a `turn_started` refers to; raise `CorruptState` when it is gone, or no start of a turn."""
    try:
        fetched = prompts.fetch(plain, tick, here)
        wrong = _check_of(TurnStarted.kind)({**plain, **fetched})
        # Held against the rules as a whole: sound parts may make no start of a turn.
        why = str(wrong) if wrong else why_no_start(TurnStarted.from_json({**plain, **fetched}))
    except NoPrompt as error:
        why = str(error)
    if why:
        raise CorruptState(
            f"what the turn of {plain['agent']} started from cannot be put together: {why}",
            where=f"{paths.journal_file(tick)}:{line}",
            hint="restore the journals of the ticks before it from a backup; where the tick is not over, "
            "`lemming repair` has the turn taken anew",
        )
    return fetched
