"""Read journals: lines into records, their content and position validated, and lookups in the records of a tick."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import IO

from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, CorruptState
from lemming.kernel.base.turn_numbers import TURNS_PER_TICK, turn_key
from lemming.kernel.files.field_types import Check, Count, Json, compile_check, format_value, type_schema
from lemming.kernel.files.json_documents import to_value
from lemming.kernel.journal.checksums import (
    damaged_error,
    invalid_record_error,
    is_intact,
    iter_lines,
    line_checksum,
    parse_line,
)
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
    TurnEnded,
    TurnResumed,
    TurnStarted,
    TurnTold,
)
from lemming.kernel.journal.journal_segments import JOURNAL_LIMIT_BYTES
from lemming.kernel.journal.prompt_store import (
    InlineParts,
    MissingPromptPart,
    PromptReader,
    has_references,
    reference_schema,
)
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.org.resume import AgentCredits
from lemming.kernel.org.settings_blocks import LoopSettings
from lemming.kernel.plugins.capability_loader import load_provided
from lemming.kernel.plugins.capability_table import provided

_RECORD_BYTES = 512  # memory that Python takes for a small record


@dataclass(frozen=True)
class JournalContents:
    """Records of a journal, with the valid size, the last checksum and the size of the torn rest.

    `epochs`: the epochs of the engines that wrote the records. `long_lines`: number of long lines, as
    `journal.prompt_store` counts them.
    """

    records: list[Record]
    valid_bytes: int = 0
    check: bytes = b""
    surplus_bytes: int = 0
    epochs: frozenset[int] = frozenset()
    long_lines: int = 0

    @property
    def plan(self) -> TickStarted | None:
        """The plan of the tick, which is the first record, or None if the tick has not started."""
        return find_tick_started(self.records)


def parse_records(
    stream: IO[bytes],
    tick: int,
    prompts: PromptReader,
    *,
    limit_bytes: int = JOURNAL_LIMIT_BYTES,
    only_first: bool = False,
) -> JournalContents:
    """Parse the bytes of a tick's journal. Raise `CorruptState` for damage before the last line."""
    file, records, sequence = paths.journal_file(tick), list[Record](), RecordSequence(tick)
    checksum, offset, remaining_bytes, epochs, inline_parts = b"", 0, limit_bytes, set[int](), InlineParts()
    for number, line in enumerate(iter_lines(stream, file), 1):
        remaining_bytes -= len(line) + _RECORD_BYTES
        if remaining_bytes < 0:
            raise damaged_error(file, number, f"the file is larger than the limit of {limit_bytes >> 20} MiB")
        values = parse_line(line) if is_intact(line, checksum) else None
        if values is None:
            if surplus := stream.read(1):  # a crash tears only the very last line
                reason = "an empty line" if line == b"\n" else "the checksum does not match the line before"
                raise damaged_error(file, number, reason)
            surplus_bytes = len(line) + len(surplus)
            return JournalContents(records, offset, checksum, surplus_bytes, frozenset(epochs), len(inline_parts.lines))
        try:
            records.append(sequence.accept(values, prompts, inline_parts))
        except InvalidRecord as error:
            raise invalid_record_error(file, number, str(error)) from error
        checksum = line_checksum(line)
        epochs.add(values["epoch"])
        offset += len(line)
        if only_first:
            break
    return JournalContents(records, offset, checksum, epochs=frozenset(epochs), long_lines=len(inline_parts.lines))


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
    lemming.kernel.journal.journal_parser.InvalidRecord: turn_resumed /agent: "../x" is not an allowed value
    """
    name = values.get("type")
    try:
        kind = _find_record_class(name) if isinstance(name, str) else None
    except ConfigError as error:
        raise InvalidRecord(f"{name}: {error.message}") from error
    if kind is None:
        raise InvalidRecord(f"kind must be known to this version, got {format_value(name)}")
    if violation := _record_check(kind.kind, has_references(values))(values):
        raise InvalidRecord(f"{name} {violation}")
    return kind.from_json(values)


@cache
def _record_check(name: str, refers: bool = False) -> Check:
    kind = _find_record_class(name)
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
        if reason := _start_error(record):
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
        reason = str(violation) if violation else _start_error(TurnStarted.from_json({**values, **resolved}))
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


def _find_record_class(name: str) -> type[Record] | None:
    """Return the record class for the `type` of a line, or None for an unknown type.

    Raises `ConfigError` if the type belongs to a capability that is not installed.
    """
    return RECORDS.get(name) or (load_provided("records", name) if name in provided("records") else None)


PROMPT_PLACEHOLDER = "(recorded in the prompt)"
"""Placeholder for the instructions, which the record holds once, in the prompt."""


def _start_error(record: TurnStarted) -> str:
    """Return the reason a turn cannot start from a `turn_started`, or an empty string."""
    if record.resume["name"] != record.agent:
        return f'turn_started /resume/name: must be {record.agent}, got "{record.resume["name"]}"'
    parsers = {
        "resume": recorded_agent,
        "model": recorded_model,
        "allocation": recorded_allocation,
        "loops": load_loop_settings,
    }
    for key, parse_part in parsers.items():
        try:
            parse_part(record)
        except ValueError as error:
            return f"turn_started /{key}: {error}"
    return ""


def recorded_agent(record: TurnStarted) -> Agent:
    """Return the agent at the start of its turn. Raise `ValueError` for an invalid resume."""
    agent: Agent = to_value(Agent, {**record.resume, "instructions": PROMPT_PLACEHOLDER})
    return agent


def recorded_model(record: TurnStarted) -> ModelEntry:
    """Return the model at the start of the turn. Raise `ValueError` for an invalid model."""
    entry: ModelEntry = to_value(ModelEntry, record.model)
    return entry


def load_loop_settings(record: TurnStarted) -> LoopSettings | None:
    """Return the loop settings in a turn's record, or None. Raise `ValueError` for invalid settings."""
    settings_json = record.as_json().get("loops")
    loops: LoopSettings | None = to_value(LoopSettings, settings_json) if settings_json else None
    return loops


def recorded_allocation(record: TurnStarted) -> AgentCredits:
    """Return the credits available to the agent at the start of the turn. Raise `ValueError` if invalid."""
    allocation: AgentCredits = to_value(AgentCredits, record.allocation)
    return allocation


def find_start_and_end(records: Iterable[Record]) -> tuple[TurnStarted | None, TurnEnded | None]:
    """Return the start and end records of a turn from the turn's records; None for a missing record."""
    started: TurnStarted | None = None
    ended: TurnEnded | None = None
    for record in records:
        if isinstance(record, TurnStarted):
            started = record
        elif isinstance(record, TurnEnded):
            ended = record
    return started, ended


def find_tick_started(records: Sequence[Record]) -> TickStarted | None:
    """Return the plan among the records of a journal, or None. The plan is the first record."""
    first = records[0] if records else None
    return first if isinstance(first, TickStarted) else None


def attempts_without_progress(records: Iterable[Record]) -> int:
    """Return the number of times a turn was started since its last progress, from the turn's records."""
    count = 0
    for record in records:
        # A call about to start is no progress: it may be what kills the engine.
        if not isinstance(record, (ModelReserved, ModelStarted)):
            count = count + 1 if isinstance(record, (TurnStarted, TurnResumed)) else 0
    return count


def may_have_rebooted(plan: TickStarted | None, boot_id: str) -> bool:
    """Return True if the machine may have rebooted since the journal with this plan was started."""
    return plan is None or not boot_id or plan.boot != boot_id  # without an id it cannot be ruled out
