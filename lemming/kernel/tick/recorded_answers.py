"""Restore recorded answers: model replies, tool results and check findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from lemming.kernel.base.contract import NewEntry, ToolCall
from lemming.kernel.base.errors import LemmingError, error_name, restore_error
from lemming.kernel.base.redaction.secrets import redact_values
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.journal.journal_records import (
    GateAsked,
    ModelFailed,
    ModelReplied,
    Record,
    ToolFinished,
    ToolStarted,
)
from lemming.kernel.journal.record_parts import FailedAttempt
from lemming.kernel.journal.turn_report import GateVerdict
from lemming.kernel.logging_config import EngineLog
from lemming.kernel.tools import ToolResult, interrupted_result
from lemming.kernel.tools.tool_definition import INFERRED
from lemming.kernel.turn.turn_values import Answer, TurnInputs

if TYPE_CHECKING:
    from pathlib import Path

    from lemming.kernel.turn.turn_values import CheckFinding


class CallView(NamedTuple):
    """A turn as one of its calls finds it.

    `number`: of the call, in the tick. `at`: the time. `staged`: files that the turn has written. `used_up`: credits that
    the agent has spent.
    """

    number: int
    at: str
    staged: Mapping[str, FileEffect]
    used_up: float


_get_answer_fields = attrgetter(*(answer_field.name for answer_field in fields(Answer)))


def restore_answer(record: ModelReplied | ModelFailed) -> Answer:
    """Return the recorded answer, or raise the recorded error."""
    if isinstance(record, ModelFailed):
        failure = restore_error(record.error, record.message)
        failure.verdicts, failure.at, failure.lost = record.verdicts, record.at, record.lost
        raise failure
    return Answer(*_get_answer_fields(record))


def to_attempt_fields(base: Path, inputs: TurnInputs, call: int, earlier: tuple[LemmingError, ...]) -> dict[str, Any]:
    """Return the failed attempts of a model call as fields of its record, and log them."""
    if not earlier:
        return {}
    attempts = [FailedAttempt(code=error.code, error=error_name(error), message=str(error)) for error in earlier]
    facts = {"attempts": len(attempts) + 1, "earlier": attempts}
    call_fields = {"tick": inputs.tick, "agent": inputs.agent.name, "call": call}
    EngineLog(base).warning("model_asked_again", **call_fields, **facts)
    return facts


def make_tool_record(
    agent: str, index: int, call: ToolCall, result: ToolResult, took_ms: int, approved: int = 0
) -> ToolFinished:
    """Return the record of a tool call's result. `approved`: number of questions that persons had approved."""
    optional_fields: dict[str, Any] = {"duration_ms": took_ms} if took_ms else {}
    recorded = {
        "passed_on": result.passed_on,
        "entries_by": result.entries_by,
        "kept": result.state,
        "trust": result.trust,
        "approved": approved,
    }
    optional_fields |= {key: value for key, value in recorded.items() if value}
    if result.entries:
        optional_fields["entries"] = [entry._asdict() for entry in result.entries]
    if result.attempts > 1:
        optional_fields["attempts"] = result.attempts
    if result.on_error != "return":
        optional_fields["on_error"] = result.on_error
    if result.verdicts:
        optional_fields["verdicts"] = [verdict.as_json() for verdict in result.verdicts]
    return ToolFinished(
        agent=agent,
        index=index,
        tool=call.tool,
        success=result.success,
        outcome=result.outcome,
        output=redact_values(result.output),
        effects=[effect.as_json() for effect in result.effects],
        **optional_fields,
    )


def restore_result(record: ToolFinished) -> ToolResult:
    """Return the recorded result of a tool call, with the files to write."""
    effects = tuple(FileEffect.from_json(raw_effect) for raw_effect in record.effects)
    # Journals of version 0.1.0 have no outcomes.
    outcome = record.outcome or ("interrupted" if _is_interrupted_output(record.output) else INFERRED)
    return ToolResult(
        record.success,
        record.output,
        effects,
        record.passed_on,
        outcome,
        tuple(NewEntry(**entry) for entry in record.entries),
        record.attempts,
        record.on_error,
        record.trust,
        tuple(GateVerdict(**verdict) for verdict in record.verdicts),
        record.entries_by,
        record.kept,
    )


def restore_finding(record: GateAsked) -> CheckFinding | None:
    """Return the recorded finding of a check function, or raise the recorded error."""
    from lemming.kernel.turn.turn_values import CheckFinding, CheckFunctionError

    if record.error:
        raise CheckFunctionError(record.error)
    return CheckFinding(**record.found) if record.found else None


def calls_with_side_effects(records: list[Record]) -> Iterator[tuple[ToolStarted, ToolResult | None]]:
    """Yield each announced call of a turn with its result; None without a recorded end."""
    finished = {record.index: record for record in records if isinstance(record, ToolFinished)}
    for record in records:
        if isinstance(record, ToolStarted):
            end_record = finished.get(record.index)
            yield record, restore_result(end_record) if end_record else None


def files_written_early(records: list[Record]) -> list[str]:
    """Return the sorted files of a turn's tools written before a call with side effects, or a check."""
    staged: list[str] = []
    written: set[str] = set()
    for record in records:
        if isinstance(record, ToolFinished):
            staged += [FileEffect.from_json(raw_effect).path_key for raw_effect in record.effects]
        elif isinstance(record, ToolStarted) or (isinstance(record, GateAsked) and record.wrote):
            written.update(staged)
    return sorted(written)


def _is_interrupted_output(output: str) -> bool:
    """Return True if an output is that of an interrupted call, as in journals of version 0.1.0."""
    prefix, _, suffix = interrupted_result("|").output.partition("|")
    return output.startswith(prefix) and output.endswith(suffix)


def was_approved(record: ToolFinished, questions: int) -> bool:
    """Return True if persons had approved the last of so many questions about a call, by its record."""
    if record.approved >= questions:
        return True
    is_made = bool(record.kept) or record.outcome not in ("deferred", "pending", "refused", "skipped")
    return is_made and not record.approved
