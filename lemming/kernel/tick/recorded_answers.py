"""Restore recorded answers: model replies, tool results and check findings. Abandon a turn by its records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from lemming.kernel.base.contract import NewEntry, ToolCall
from lemming.kernel.base.errors import LemmingError, TurnBroke, error_name, restore_error
from lemming.kernel.base.redaction.secrets import redact_values
from lemming.kernel.files.file_effects import FileEffect
from lemming.kernel.journal.journal_file import Journal
from lemming.kernel.journal.journal_records import (
    GateAsked,
    ModelFailed,
    ModelReplied,
    Record,
    ToolFinished,
    ToolStarted,
)
from lemming.kernel.journal.record_parts import FailedAttempt
from lemming.kernel.journal.turn_report import GateVerdict, ToolUseJson, TurnReport
from lemming.kernel.journal.write_offs import write_off_total
from lemming.kernel.logging_config import EngineLog
from lemming.kernel.obligations.grants import drop_used_approvals
from lemming.kernel.plugins.capability_table import REQUEST_RULES
from lemming.kernel.tools import ToolResult, interrupted_result
from lemming.kernel.tools.tool_definition import INFERRED
from lemming.kernel.turn.effect_chain import EffectChain, Interceptor
from lemming.kernel.turn.loop_breaker import count_loop, failure_loop
from lemming.kernel.turn.preparation_chain import starting_capabilities
from lemming.kernel.turn.tool_results import INTERRUPTED, render_result, tool_use_json
from lemming.kernel.turn.turn_effects import Allowed, CallTool, Seal, TakeResult
from lemming.kernel.turn.turn_end import charge_usage, newest_results, spending_fields
from lemming.kernel.turn.turn_hooks import Capability, make_interceptor
from lemming.kernel.turn.turn_state import TurnState
from lemming.kernel.turn.turn_values import Answer, TurnInputs, TurnOutcome
from lemming.kernel.turn.turn_view import TurnView

if TYPE_CHECKING:
    from pathlib import Path

    from lemming.kernel.turn.turn_values import CheckFinding


class CallView(NamedTuple):
    """A turn at one of its calls: the number in the tick, the time, staged files, and spent credits."""

    number: int
    at: str
    staged: Mapping[str, FileEffect]
    used_up: float


_get_answer_fields = attrgetter(*(answer_field.name for answer_field in fields(Answer) if answer_field.init))


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
    outcome = record.outcome
    if not outcome:  # journals of version 0.1.0 have no outcomes: the output of an interrupted call shows it
        prefix, _, suffix = interrupted_result("|").output.partition("|")
        is_interrupted = record.output.startswith(prefix) and record.output.endswith(suffix)
        outcome = "interrupted" if is_interrupted else INFERRED
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


def was_approved(record: ToolFinished, questions: int) -> bool:
    """Return True if persons had approved the last of so many questions about a call, by its record."""
    if record.approved >= questions:
        return True
    is_made = bool(record.kept) or record.outcome not in ("deferred", "pending", "refused", "skipped")
    return is_made and not record.approved


def abandon_turn(
    journal: Journal, inputs: TurnInputs, records: list[Record], *, reason: str, error: str, plugins: tuple[str, ...]
) -> TurnOutcome:
    """Return the outcome of an abandoned turn, from its recorded inputs and records.

    A call without a recorded end is recorded as unknown, so `lemming repair` lists the call.
    """
    request = inputs.current_request
    replies = [record for record in records if isinstance(record, ModelReplied)]
    answers = [restore_answer(record) for record in replies]
    finished, usage = [record for record in records if isinstance(record, ToolFinished)], spending_fields(answers)
    # The answers on record were paid for, although nothing of the turn is written.
    spent = charge_usage(inputs, answers, usage, "failed")
    # Only the capabilities of the turn know its labels and limits, so the turn stays until all of them are back.
    capabilities = starting_capabilities(inputs, plugins, [REQUEST_RULES] if request else [])
    if request:  # the turn counts as a failure of its request
        cost, counts = request.sum_costs(replies, write_off_total(records)), error == TurnBroke.__name__
        if counts or (cost and request.counts_open_budgets):
            spent.requests = request.state_after_failure(spent.requests, cost, counts=counts, calls=len(replies))
    state = drop_used_approvals(spent, records)
    results, tools, remarks = _describe_side_effects(journal, inputs, records)
    results = _label_results(capabilities, inputs, finished, results)
    state.results = newest_results((*state.results, *results))
    state.passed_on += sum(record.passed_on for record in finished)
    state.lost = state.lost.add(write_off := write_off_total(records))
    stopped = ""
    if error == TurnBroke.__name__ and answers and inputs.loops:
        state.loops, stopped = count_loop(inputs, failure_loop(error))
    report = TurnReport(
        agent=inputs.agent.name,
        status="failed",
        reason=reason,
        error=error,
        tools=tools,
        written_ahead=files_written_early(records),
        remarks=remarks,
        lost=write_off.as_json(),
        stopped=stopped,
        turn=inputs.turn,
        # Records of first turns never had it; a further turn needs it when the tick is attempted again.
        request=inputs.request_identity if inputs.turn else "",
        **usage,
    )
    return TurnOutcome(report, state, lambda: state)


@dataclass
class _PastTurn:
    """The part of a turn's state that labels need."""

    inputs: TurnInputs
    report_fields: dict[str, Any] = field(default_factory=dict)

    def report(self, key: str, value: Any) -> None:
        """Note a field of the report."""
        self.report_fields[key] = value


def _label_results(
    capabilities: Iterable[Capability],
    inputs: TurnInputs,
    finished: Iterable[ToolFinished],
    results: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    """Return the results for the next turn as the capabilities seal them, which have seen all results of the turn."""
    state, links = cast(TurnState, _PastTurn(inputs)), list[Interceptor]()
    for item in capabilities:
        if Seal in item.handles:
            links.append(make_interceptor(item, TurnView(item.name, state, inputs.given.get(item.name, {}))))
    if not (links and results):
        return results
    chain = EffectChain(links, lambda _: True, lambda _: None)
    for record in finished:
        chain.dispatch(TakeResult(call=CallTool(tool=record.tool, args={}), result=restore_result(record)))
    outcome = chain.dispatch(Seal(files={}, results=results))
    return [*outcome.effect.results] if isinstance(outcome, Allowed) and isinstance(outcome.effect, Seal) else []


def _describe_side_effects(
    journal: Journal, inputs: TurnInputs, records: list[Record]
) -> tuple[list[dict[str, Any]], list[ToolUseJson], list[str]]:
    """Return the results and remarks on calls with side effects, for the agent and for a person."""
    name = inputs.agent.name
    results, tool_usage, remarks = [], [], []
    for call, result in calls_with_side_effects(records):
        if result is None:
            result = INTERRUPTED
            # On record before it is told: from here on the call counts as made, and no attempt runs it again.
            journal.append(make_tool_record(name, call.index, ToolCall(call.tool, call.args), result, 0))
        rendered = render_result(call.tool, call.args, result)
        if result.outcome == "interrupted":
            remarks.append(f"{call.tool}: {result.output}")
            rendered["unknown"] = f"{inputs.tick}/{name}/{call.index}"
        results.append(rendered)
        tool_usage.append(tool_use_json(call.tool, result))
    return results, tool_usage, remarks
