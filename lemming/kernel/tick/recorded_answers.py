"""Answers as records hold them, read back: what a model said, what a call gave, what a function found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from lemming.kernel.base.contract import NewEntry, ToolCall
from lemming.kernel.base.errors import recorded_failure
from lemming.kernel.base.redaction.secrets import redact_values
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.journal.records import (
    GateAsked,
    ModelFailed,
    ModelReplied,
    Record,
    ToolFinished,
    ToolStarted,
)
from lemming.kernel.journal.verdicts import GateVerdict
from lemming.kernel.tools import ToolResult, interrupted
from lemming.kernel.tools.definition import INFERRED
from lemming.kernel.turn.values import Answer

if TYPE_CHECKING:
    from lemming.kernel.turn.places import Found

_facts_of = attrgetter(*(it.name for it in fields(Answer)))


def recorded_answer(record: ModelReplied | ModelFailed) -> Answer:
    """Return the answer that a record holds; raise the error that stood in its place."""
    if isinstance(record, ModelFailed):
        failure = recorded_failure(record.error, record.message)
        failure.verdicts, failure.at, failure.lost = record.verdicts, record.at, record.lost
        raise failure
    return Answer(*_facts_of(record))


def record_of(agent: str, index: int, call: ToolCall, result: ToolResult, took_ms: int) -> ToolFinished:
    """Return the record of what came of a tool call."""
    more: dict[str, Any] = {"duration_ms": took_ms} if took_ms else {}
    for key in ("passed_on", "entries_by", "kept", "trust"):
        if value := getattr(result, key):
            more[key] = value
    if result.entries:
        more["entries"] = [entry._asdict() for entry in result.entries]
    if result.attempts > 1:
        more["attempts"] = result.attempts
    if result.on_error != "return":
        more["on_error"] = result.on_error
    if result.verdicts:
        more["verdicts"] = [verdict.as_json() for verdict in result.verdicts]
    return ToolFinished(
        agent=agent,
        index=index,
        tool=call.tool,
        success=result.success,
        outcome=result.outcome,
        output=redact_values(result.output),
        effects=[effect.as_json() for effect in result.effects],
        **more,
    )


def recorded_result(record: ToolFinished) -> ToolResult:
    """Return the result of a tool call that a record holds, with the files it wants written."""
    effects = tuple(FileEffect.from_json(plain) for plain in record.effects)
    outcome = record.outcome or ("interrupted" if _is_unknown(record.output) else INFERRED)
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


def recorded_finding(record: GateAsked) -> Found | None:
    """Return what a function said to a gate; raise what stood in its place."""
    from lemming.kernel.turn.places import Found, FunctionBroke

    if record.error:
        raise FunctionBroke(record.error)
    return Found(**record.found) if record.found else None


def reached_outside(records: list[Record]) -> Iterator[tuple[ToolStarted, ToolResult | None]]:
    """Yield each call of a turn that was announced, and its result; None when no end is recorded."""
    finished = {record.index: record for record in records if isinstance(record, ToolFinished)}
    for record in records:
        if isinstance(record, ToolStarted):
            ended = finished.get(record.index)
            yield record, recorded_result(ended) if ended else None


def written_ahead(records: list[Record]) -> list[str]:
    """Return the files of a turn's tools that were written before a call that reached outside, sorted."""
    staged: list[str] = []
    written: set[str] = set()
    for record in records:
        if isinstance(record, ToolFinished):
            staged += [FileEffect.from_json(plain).place for plain in record.effects]
        elif isinstance(record, ToolStarted):
            written.update(staged)
    return sorted(written)


def _is_unknown(output: str) -> bool:
    """Return whether an output is that of a call of which nobody knows; journals of 0.1.0 tell it so."""
    begins, _, ends = interrupted("|").output.partition("|")
    return output.startswith(begins) and output.endswith(ends)
