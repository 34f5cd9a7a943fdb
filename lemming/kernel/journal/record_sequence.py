"""Validation of journal lines: the content of each record and the position in the journal. Pure."""

from __future__ import annotations

from functools import cache, partial

from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, CorruptState
from lemming.kernel.base.turn_numbers import TURNS_PER_TICK, turn_key
from lemming.kernel.files.field_types import Check, Count, Json, compile_check, format_value, type_schema
from lemming.kernel.journal.journal_records import (
    RECORDS,
    ModelFailed,
    ModelReplied,
    ModelReserved,
    ModelStarted,
    Record,
    TickCommitted,
    TickStarted,
    ToolFinished,
    ToolStarted,
    TurnAnswered,
    TurnCommitted,
    TurnResumed,
    TurnStarted,
    TurnTold,
)
from lemming.kernel.journal.prompt_store import (
    InlineParts,
    MissingPromptPart,
    PromptReader,
    has_references,
    reference_schema,
)
from lemming.kernel.journal.record_registry import find_record_class
from lemming.kernel.journal.turn_start import start_error

_WITHIN_A_TURN = (
    TurnResumed, ModelReserved, ModelStarted, ModelReplied, ModelFailed, ToolStarted, ToolFinished, TurnTold,
    TurnAnswered,
)  # fmt: skip
"""Records allowed only after the `turn_started` of their agent, like the records of capabilities."""


class InvalidRecord(ValueError):
    """Raised for a line that is not a valid record, or is at a wrong position."""


def parse_record(values: Json) -> Record:
    """Return the record in a line. Raise `InvalidRecord` for an invalid line.

    >>> parse_record({"type": "turn_resumed", "epoch": 2, "agent": "../x"})
    Traceback (most recent call last):
    lemming.kernel.journal.record_sequence.InvalidRecord: turn_resumed /agent: "../x" is not an allowed value
    """
    name = values.get("type")
    try:
        kind = find_record_class(name) if isinstance(name, str) else None
    except ConfigError as error:
        raise InvalidRecord(f"{name}: {error.message}") from error
    if kind is None:
        raise InvalidRecord(f"kind must be known to this version, got {format_value(name)}")
    if violation := _record_check(kind.kind, has_references(values))(values):
        raise InvalidRecord(f"{name} {violation}")
    return kind.from_json(values)


@cache
def _record_check(name: str, refers: bool = False) -> Check:
    kind = find_record_class(name)
    assert kind, name
    schema = reference_schema() if refers else kind.json_schema()
    schema["properties"] |= {"epoch": type_schema(Count)}
    schema["required"] = ["epoch", *schema["required"]]
    return compile_check(schema)


class RecordSequence:
    """Validates the records of a journal in order."""

    def __init__(self, tick: int) -> None:
        self._tick, self._line = tick, 0
        self._order: frozenset[str] | None = None
        self._started: set[str] = set()
        self._is_over = False

    def accept(self, values: Json, prompts: PromptReader, inline_parts: InlineParts) -> Record:
        """Return the next record. Raise `InvalidRecord` for an invalid or misplaced record.

        The record's inline parts are added to `inline_parts`; `prompts` resolves the references.
        """
        self._line += 1
        record = parse_record(values)
        if reason := self._order_violation(record):
            raise InvalidRecord(reason)
        if not isinstance(record, TurnStarted):
            return record
        inline_parts.collect(values)
        # Resolved on access: most readers of a journal never look at a prompt.
        if has_references(values):
            return TurnStarted.from_json(
                values, partial(_resolve_start, values, self._tick, self._line, prompts, inline_parts)
            )
        if reason := start_error(record):
            raise InvalidRecord(reason)
        return record

    def _order_violation(self, record: Record) -> str:
        if self._order is None and isinstance(record, TickStarted):
            if record.tick != self._tick:
                return f"tick must be {self._tick} as in the file's name, got {record.tick}; rename the file"
            self._order = frozenset(record.order)
            return ""
        if self._order is None or isinstance(record, TickStarted):
            return f"the first record must be the only tick_started, got {record.kind}"
        if self._is_over:
            return f"{record.kind} comes after the end of the tick"
        self._is_over = isinstance(record, TickCommitted)
        agent_names = [record.agent_name] if record.agent_name else [name for name, _ in record.submitted_calls]
        for name in agent_names:
            if name not in self._order:
                return f'{record.kind}: "{name}" has no turn in this tick'
        return self._missing_turn_reason(record)

    def _missing_turn_reason(self, record: Record) -> str:
        match record:
            case TurnStarted(agent=agent, turn=turn):
                if record.turn_key in self._started:
                    return f"turn_started: the turn of {agent} starts twice"
                if turn and turn_key(agent, turn - 1) not in self._started:
                    return f"turn_started: turn {turn} of {agent} starts before turn {turn - 1}"
                if turn >= TURNS_PER_TICK:
                    return f"turn_started: turn must be below {TURNS_PER_TICK}, got {turn}"
                self._started.add(record.turn_key)
                return ""
            case TurnCommitted(state=dict() as state) if state["tick"] != self._tick:
                return f"turn_committed /state/tick: the tick must be the journal's, got {state['tick']}"
            # A turn that fails before it begins has an end and no beginning.
            case TurnCommitted(report=report):
                has_worked = report.status != "failed"
            case _:
                is_capability_record = bool(record.agent_name) and record.kind not in RECORDS
                has_worked = isinstance(record, _WITHIN_A_TURN) or is_capability_record
        if has_worked and record.turn_key not in self._started:
            return f"{record.kind}: the turn of {record.agent_name} has not started"
        return ""


def _resolve_start(values: Json, tick: int, line: int, prompts: PromptReader, inline_parts: InlineParts) -> Json:
    """Return the parts a `turn_started` refers to. Raise `CorruptState` if a part is missing or invalid."""
    try:
        resolved = prompts.resolve_prompt(values, tick, inline_parts)
        violation = _record_check(TurnStarted.kind)({**values, **resolved})
        # Checked as a whole too: valid parts may add up to an invalid start.
        reason = str(violation) if violation else start_error(TurnStarted.from_json({**values, **resolved}))
    except MissingPromptPart as error:
        reason = str(error)
    if reason:
        raise CorruptState(
            f"the inputs of the turn of {values['agent']} cannot be rebuilt: {reason}",
            where=f"{paths.journal_file(tick)}:{line}",
            hint=(
                "restore the journals of the earlier ticks from a backup; in an unfinished tick, "
                "`lemming repair` repeats the turn"
            ),
        )
    return resolved
