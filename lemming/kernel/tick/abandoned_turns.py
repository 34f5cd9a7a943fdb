"""Abandon a turn: discard its writes, but keep its costs and the record of its side effects."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from lemming.kernel.base.contract import ToolCall
from lemming.kernel.base.errors import TurnBroke
from lemming.kernel.journal.journal_file import Journal
from lemming.kernel.journal.journal_records import ModelReplied, Record, ToolFinished
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.turn_report import ToolUseJson, TurnReport
from lemming.kernel.journal.write_offs import write_off_total
from lemming.kernel.obligations.current_request import CurrentRequest
from lemming.kernel.obligations.grants import drop_used_approvals
from lemming.kernel.plugins.capability_table import REQUEST_RULES
from lemming.kernel.tick.recorded_answers import (
    calls_with_side_effects,
    files_written_early,
    make_tool_record,
    restore_answer,
    restore_result,
)
from lemming.kernel.turn.effect_chain import EffectChain, Interceptor
from lemming.kernel.turn.interceptor_chain import starting_capabilities
from lemming.kernel.turn.loop_breaker import count_loop, failure_loop
from lemming.kernel.turn.tool_results import INTERRUPTED, render_result, tool_use_json
from lemming.kernel.turn.turn_effects import Allowed, CallTool, Seal, TakeResult
from lemming.kernel.turn.turn_end import charge_usage, newest_results, spending_fields
from lemming.kernel.turn.turn_hooks import Capability
from lemming.kernel.turn.turn_state import TurnState
from lemming.kernel.turn.turn_values import TurnInputs, TurnOutcome
from lemming.kernel.turn.turn_view import TurnView


def abandon_turn(
    journal: Journal, inputs: TurnInputs, records: list[Record], *, reason: str, error: str, plugins: tuple[str, ...]
) -> TurnOutcome:
    """Return the outcome of an abandoned turn, from its recorded inputs and records.

    A call without a recorded end is recorded as unknown, so `lemming repair` lists the call.
    """
    answers = [restore_answer(record) for record in records if isinstance(record, ModelReplied)]
    finished, usage = (
        [tool_record for tool_record in records if isinstance(tool_record, ToolFinished)],
        spending_fields(answers),
    )
    # The answers on record were paid for, although nothing of the turn is written.
    spent = charge_usage(inputs, answers, usage, "failed")
    # Only the capabilities of the turn know its labels and limits, so the turn stays until all of them are back.
    capabilities = starting_capabilities(inputs, plugins, [REQUEST_RULES] if inputs.task else [])
    state = drop_used_approvals(_count_failure(spent, inputs, records, error), records)
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
        request=inputs.task.request if inputs.task and inputs.turn else "",
        **usage,
    )
    return TurnOutcome(report, state, lambda: state)


def _count_failure(state: AgentState, inputs: TurnInputs, records: list[Record], error: str) -> AgentState:
    """Return the state of an agent after an abandoned turn; the turn counts as a failure of its request."""
    task = inputs.task
    if isinstance(task, CurrentRequest):
        replies = [record for record in records if isinstance(record, ModelReplied)]
        cost, counts = task.sum_costs(replies, write_off_total(records)), error == TurnBroke.__name__
        if counts or (cost and task.counts_open_budgets):
            state.requests = task.state_after_failure(state.requests, cost, counts=counts, calls=len(replies))
    return state


@dataclass
class _PastTurn:
    """The part of a turn's state that labels need."""

    inputs: TurnInputs
    trust_label: str = ""
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
            links.append(item.interceptor(TurnView(item.name, state, inputs.given.get(item.name, {}))))
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
