"""A turn that is given up: nothing that it wrote counts, but what it cost and did outside does."""

from __future__ import annotations

from typing import Any

from lemming.kernel.base.contract import ToolCall
from lemming.kernel.base.errors import TurnBroke
from lemming.kernel.journal.file import Journal
from lemming.kernel.journal.lost_calls import lost_in
from lemming.kernel.journal.records import ModelReplied, Record, ToolFinished
from lemming.kernel.journal.report import ToolUsed, TurnReport
from lemming.kernel.tick.recorded_answers import reached_outside, record_of, recorded_answer, written_ahead
from lemming.kernel.turn.ending import newest, spending, state_after_spending
from lemming.kernel.turn.loop_breaker import count_loop, loop_of_failure
from lemming.kernel.turn.parts import after_giving_up, kept_results
from lemming.kernel.turn.results import INTERRUPTED, as_shown, tool_used
from lemming.kernel.turn.values import TurnInputs, TurnOutcome


def given_up(
    journal: Journal,
    inputs: TurnInputs,
    records: list[Record],
    *,
    reason: str,
    error: str,
    plugins: tuple[str, ...],
) -> TurnOutcome:
    """Return what a turn comes to that is given up, by its inputs and records as the journal has them.

    A call whose end was not recorded is recorded as unknown, so that `lemming repair` lists it.
    """
    answers = [recorded_answer(record) for record in records if isinstance(record, ModelReplied)]
    finished, used = [it for it in records if isinstance(it, ToolFinished)], spending(answers)
    spent = state_after_spending(inputs, answers, used, "failed")
    state = after_giving_up(spent, inputs, records, error, plugins)
    results, tools, remarks = _happened_outside(journal, inputs, records)
    results = kept_results(inputs, finished, results, plugins)
    state.results = newest((*state.results, *results))
    state.passed_on += sum(record.passed_on for record in finished)
    state.lost = state.lost.plus(lost := lost_in(records))
    stopped = ""
    if error == TurnBroke.__name__ and answers and inputs.loops:
        state.loops, stopped = count_loop(inputs, loop_of_failure(error))
    report = TurnReport(
        agent=inputs.agent.name,
        status="failed",
        reason=reason,
        error=error,
        tools=tools,
        written_ahead=written_ahead(records),
        remarks=remarks,
        lost=lost.as_json(),
        stopped=stopped,
        turn=inputs.turn,
        # Of the first turn no record ever said it; of a further one a second attempt has to know.
        request=inputs.task.request if inputs.task and inputs.turn else "",
        **used,
    )
    return TurnOutcome(report, state, lambda: state)


def _happened_outside(
    journal: Journal, inputs: TurnInputs, records: list[Record]
) -> tuple[list[dict[str, Any]], list[ToolUsed], list[str]]:
    """Return what the agent must be told of its calls that reached outside, and what a person must be."""
    name = inputs.agent.name
    results, used, remarks = [], [], []
    for call, result in reached_outside(records):
        if result is None:
            result = INTERRUPTED
            journal.append(record_of(name, call.index, ToolCall(call.tool, call.args), result, 0))
        shown = as_shown(call.tool, call.args, result)
        if result.outcome == "interrupted":
            remarks.append(f"{call.tool}: {result.output}")
            shown["unknown"] = f"{inputs.tick}/{name}/{call.index}"
        results.append(shown)
        used.append(tool_used(call.tool, result))
    return results, used, remarks
