"""Outcome of a turn: staged files, costs and open work, combined. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from lemming.kernel.base.errors import LemmingError, error_name
from lemming.kernel.files.fast_decoder import MAX_AMOUNT
from lemming.kernel.files.file_effects import FileEffect, order_effects
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.open_requests import OpenRequest
from lemming.kernel.journal.turn_report import USUAL_ENDS, End, Status, TurnReport, VerdictJson, is_applied
from lemming.kernel.llm.call_cost import has_reached_soft_cap
from lemming.kernel.messages import ENTRIES_PER_TURN, OutboxEntry, to_file_effect
from lemming.kernel.obligations.current_request import OWN_REQUESTS, CurrentRequest, is_fruitless
from lemming.kernel.obligations.request_payloads import parse_references
from lemming.kernel.plugins.capability_table import DECISION_RULES, REQUEST_RULES
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn import loop_breaker
from lemming.kernel.turn.dialogue import make_dialogue
from lemming.kernel.turn.tool_results import RESULTS_CHARS, is_notice, without_notices
from lemming.kernel.turn.turn_chain import TurnChain
from lemming.kernel.turn.turn_effects import EndTurn, Seal
from lemming.kernel.turn.turn_state import TurnState
from lemming.kernel.turn.turn_values import Answer, TurnInputs, TurnOutcome

REPETITION_REMARK = "the same call was made again and again, and gave the same"


def build_outcome(turn_state: TurnState, end: End, error: LemmingError | None = None) -> TurnOutcome:
    """Return the outcome. A failed turn writes nothing except costs and messages for the next turn."""
    if turn_state.events:
        turn_state.restore_entry_order()
    if turn_state.inputs.request_identity:
        turn_state.note_handoff()
    elif turn_state.get_status(end) == "waiting" and not turn_state.pending_indexes and turn_state.repeats.is_cycling:
        end = "repeats"  # no further turn is taken for results that only repeat earlier ones
        turn_state.results.mark_shown()  # no news for its next turn
        turn_state.remark(REPETITION_REMARK)
    if EndTurn in turn_state.chain.handled:
        ended = turn_state.chain.decide(EndTurn(end=end, error=error, entries=(*turn_state.entries,)))
        end = ended.end if isinstance(ended, EndTurn) else end
    if turn_state.strategy_turn.note and not (turn_state.inputs.current_request or turn_state.pending_indexes):
        # For the agent's next turn, as a result.
        turn_state.results.leave("strategy", ToolResult(True, turn_state.strategy_turn.note))
    status = turn_state.get_status(end)
    is_written = is_applied(status)
    # Also for a failed turn: its last entries and the results it leaves carry their trust labels.
    if Seal in turn_state.chain.handled:
        turn_state.seal_outputs()
    entries = (*turn_state.entries,) if is_written else (*turn_state.failure_entries,)
    if is_written and turn_state.approvals:
        entries += (*turn_state.approvals.make_requests(len(entries), ENTRIES_PER_TURN - len(entries)),)
    staged = order_effects(turn_state.staged.values()) if is_written else []
    # Entries last: the files they mention exist before any agent can read them.
    effects = (*staged, *map(to_file_effect, entries))
    usage, (loops, stop_reason) = spending_fields(turn_state.answers), _count_loops(turn_state, status, end, error)
    if stop_reason:
        turn_state.report("stopped", stop_reason)
        turn_state.remark(f"paused: {stop_reason}")
    return TurnOutcome(
        report=_report(turn_state, status, end, error, entries, staged, effects, usage),
        state=_next_state(turn_state, status, end, error, usage, loops),
        # Computed on demand: files are hardly ever unwritable.
        state_if_unwritten=partial(
            _next_state, turn_state, "failed", "failed", error, usage, loops, is_maybe_written=True
        ),
        entries=entries,
        effects=effects,
    )


def _report(
    turn_state: TurnState,
    status: Status,
    end: End,
    error: LemmingError | None,
    entries: tuple[OutboxEntry, ...],
    staged: Sequence[FileEffect],
    effects: tuple[FileEffect, ...],
    usage: dict[str, Any],
) -> TurnReport:
    # The model of the agent's own answers; capabilities may have asked another.
    own_answers = (answer for answer in reversed(turn_state.answers) if not answer.asked_by)
    return TurnReport(
        agent=turn_state.inputs.agent.name,
        status=status,
        end=end,
        reason=str(error) if error else _waiting_reason(turn_state) if status == "waiting" else "",
        error=error_name(error) if error else "",
        model=next((answer.model for answer in own_answers), ""),
        entries=[{"id": entry.id, "kind": entry.kind, "file": entry.file} for entry in entries],
        tools=turn_state.results.uses,
        memory=[
            path.rsplit("/", 1)[-1].removesuffix(".json")
            for path in turn_state.memory
            if staged or path in turn_state.written_ahead
        ],
        files=[{"path": effect.path_key, "sha256": effect.digest} for effect in effects if not effect.removes],
        removed=[effect.path_key for effect in effects if effect.removes],
        written_ahead=sorted(turn_state.written_ahead),
        remarks=turn_state.remarks,
        request=turn_state.inputs.request_identity,
        turn=turn_state.inputs.turn,
        verdicts=cast(list[VerdictJson], turn_state.verdicts),
        lost=turn_state.write_off.as_json() if turn_state.write_off.calls else None,
        **turn_state.report_fields,
        **usage,
    )


def _waiting_reason(turn_state: TurnState) -> str:
    has_requests = turn_state.has_requests and not turn_state.only_asks
    last_requests = _find_open_requests(turn_state, "done")[1][-1:] if has_requests else ()
    if names := {item.to for open_request in last_requests for item in open_request.open_sub_requests}:
        return f"waits for {', '.join(sorted(names))}"
    if turn_state.approvals and (reason := turn_state.approvals.wait_reason()):
        return str(reason)
    if turn_state.pause_reason or turn_state.strategy_turn.note:
        return turn_state.pause_reason or turn_state.strategy_turn.note
    if not turn_state.results.unshown:
        return "the request is not answered yet" if turn_state.inputs.current_request else "its credits are used up"
    if not (count := len(without_notices(turn_state.results.unshown))):
        return "its last reply was unusable"
    return f"{count} tool result{'s' if count > 1 else ''} for its next turn"


def _next_state(
    turn_state: TurnState,
    status: Status,
    end: End,
    error: LemmingError | None,
    usage: dict[str, Any],
    loops: dict[str, int],
    *,
    is_maybe_written: bool = False,
) -> AgentState:
    inputs, is_written = turn_state.inputs, is_applied(status)
    holds_all = is_written or is_maybe_written
    state = charge_usage(inputs, turn_state.answers, usage, status)
    state.loops = loops
    state.end = "" if end == USUAL_ENDS[status] else end
    if turn_state.write_off.calls:
        state.lost = state.lost.add(turn_state.write_off)
    if turn_state.approvals:
        questions = turn_state.approvals.save_state(is_applied=is_written, holds_all=holds_all)
        state.kept = {name: value for name, value in {**state.kept, DECISION_RULES: questions}.items() if value}
    if turn_state.events and isinstance(turn_state.chain, TurnChain):
        state.kept = turn_state.chain.reduce_states(state.kept, is_applied=holds_all)
    # Nothing was shown to the model: it counts as no turn, and unread entries stay unread.
    if turn_state.only_asks:
        return state
    if is_written:
        state.turns += 1
        told_entries = turn_state.strategy_turn.told_entries
        state.read = inputs.read.with_entries(told_entries) if told_entries else inputs.read
        state.results = (*turn_state.results.unshown,)
        state.in_vain = {**turn_state.repeats.repeat_counts} if state.results else {}
        state.serving = ""
        state.inputs = _next_fingerprint(turn_state)
        state.expired_unread = 0
    else:  # side effects stay: the next prompt must report them
        state.results = newest_results((*state.results, *turn_state.results.external))
    if turn_state.has_requests:
        record_open_requests(turn_state, state, status, end, error)
    if turn_state.approvals:
        turn_state.approvals.update_agent_state(state, status, end)
    # Kept whatever the outcome of the turn: it was spent.
    asides: dict[str, float] = {}
    for answer in turn_state.answers:
        if answer.asked_by:
            asides[answer.asked_by] = asides.get(answer.asked_by, 0.0) + answer.credits
    if asides:
        spent = {name: round(state.aside.get(name, 0.0) + credits, 6) for name, credits in asides.items() if credits}
        state.aside = {**state.aside, **spent}
    if turn_state.transferred:
        # Counts as transferred if it may have been written: an allowance must never exist twice.
        amounts = [
            amount for path, amount in turn_state.transferred.items() if holds_all or path in turn_state.written_ahead
        ]
        state.passed_on = round(state.passed_on + sum(amounts), 6)
    # Checked each time: after a raise of the cap the agent is warned again.
    if state.soft_cap_warned or inputs.warned:
        state.soft_cap_warned = has_reached_soft_cap(inputs.allocation, state.credits)
    return state


def newest_results(results: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    """Return the newest results that fit into a prompt."""
    room = RESULTS_CHARS
    for count, result in enumerate(reversed(results)):
        room -= len(result["output"])
        if room < 0:
            return results[len(results) - count :]
    return results


def _next_fingerprint(turn_state: TurnState) -> dict[str, Any] | None:
    """Return the fingerprint of the next turn's inputs if no other agent changes anything."""
    if turn_state.inputs.fingerprint is None:
        return None
    memory = dict(turn_state.inputs.fingerprint["memory"])
    prefix = f"agents/{turn_state.inputs.agent.name}/memory/"
    for path, effect in {**turn_state.written_ahead, **turn_state.staged}.items():
        if path.startswith(prefix):
            memory[path.removeprefix(prefix).removesuffix(".json")] = effect.digest
    context = {
        path: turn_state.staged[path].digest if path in turn_state.staged else digest
        for path, digest in turn_state.inputs.fingerprint["context"].items()
    }
    return {**turn_state.inputs.fingerprint, "memory": dict(sorted(memory.items())), "context": context}


def _count_loops(
    turn_state: TurnState, status: Status, end: End, error: LemmingError | None
) -> tuple[dict[str, int], str]:
    """Return the counts of turns without progress, including this turn, and the reason for a pause, if any.

    The counts are unchanged while turns cost nothing, and empty after a turn with progress.
    """
    old_counts, limits = turn_state.inputs.state.loops, turn_state.inputs.loops
    if limits is None or not turn_state.answers or turn_state.only_asks or end == "no_answer":
        return old_counts, ""
    if loop := _detect_loop(turn_state, status, end, error):
        return loop_breaker.count_loop(turn_state.inputs, loop)
    if turn_state.entries and turn_state.entries[0].kind != "request":  # the usual case costs no call
        return {}, ""
    has_answer = turn_state.has_requests and "answered" in turn_state.inputs.given.get(REQUEST_RULES, {})
    if not (old_counts or turn_state.entries) or has_answer or turn_state.written_ahead or turn_state.is_handed_off:
        return {}, ""
    if turn_state.repeats.has_learned or not all(turn_state.repeats.calls_of_turn.values()):
        return {}, ""
    if not turn_state.entries or turn_state.inputs.request_identity:
        return loop_breaker.select_request_counts(old_counts), ""  # says nothing about requests of the agent's own
    request_loop = loop_breaker.requests_loop(turn_state.entries)
    return loop_breaker.count_loop(turn_state.inputs, request_loop) if request_loop else ({}, "")


def _detect_loop(
    turn_state: TurnState, status: Status, end: End, error: LemmingError | None
) -> loop_breaker.Loop | None:
    """Return the kind of loop of a turn without progress, or None."""
    if status == "failed":
        return loop_breaker.failure_loop(error_name(error)) if error else None
    misaddressed = turn_state.misaddressed_entries
    if misaddressed and misaddressed.keys() == {entry.id for entry in turn_state.entries}:
        return loop_breaker.Loop(loop_breaker.MISADDRESSED, [[new.kind, new.payload] for new in misaddressed.values()])
    if (
        turn_state.pending_indexes
        or turn_state.entries
        or turn_state.written_ahead
        or turn_state.is_handed_off
        or turn_state.repeats.has_learned
    ):
        return None
    calls = turn_state.repeats.calls_of_turn
    if end == "repeats":
        return loop_breaker.Loop(loop_breaker.REPEATED, sorted(calls))
    return loop_breaker.Loop(loop_breaker.REFUSED, sorted(calls)) if calls and all(calls.values()) else None


# --- spending -------------------------------------------------------------------------------------


def spending_fields(answers: Sequence[Answer]) -> dict[str, Any]:
    """Return usage and cost of answers as keys of a `TurnReport`."""
    credits, input_tokens, output_tokens, duration_ms = 0.0, 0, 0, 0
    dollars: float | None = 0.0 if answers else None
    for answer in answers:
        credits += answer.credits
        input_tokens += answer.input_tokens
        output_tokens += answer.output_tokens
        duration_ms += answer.duration_ms
        if dollars is not None:
            dollars = None if answer.cost_usd is None else dollars + answer.cost_usd
    return {
        "calls": len(answers),
        "credits": credits,
        "cost_usd": dollars,
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "duration_ms": duration_ms,
    }


def charge_usage(inputs: TurnInputs, answers: Sequence[Answer], usage: dict[str, Any], status: Status) -> AgentState:
    """Return the agent's state with this turn's usage charged and no other change."""
    state, costs = inputs.state.copy(), [answer.cost_usd for answer in answers if answer.cost_usd is not None]
    state.tick, state.status, state.end, state.in_vain = inputs.tick, status, "", {}
    state.turn = inputs.turn
    # Bounded: a ledger with more would be refused when it is read.
    state.credits = round(min(state.credits + usage["credits"], MAX_AMOUNT), 6)
    if costs:
        state.cost_usd = min((state.cost_usd or 0.0) + sum(costs), MAX_AMOUNT)
    state.unpriced_calls += len(answers) - len(costs)
    state.input_tokens = min(state.input_tokens + usage["input_tokens"], int(MAX_AMOUNT))
    state.output_tokens = min(state.output_tokens + usage["output_tokens"], int(MAX_AMOUNT))
    state.failed += status == "failed"
    return state


# --- requests that it leaves open, and the agents that it waits for --------------------------------


def record_open_requests(
    turn_state: TurnState, state: AgentState, status: Status, end: End, error: LemmingError | None
) -> None:
    """Record the current request of the turn, and the open requests after a turn with this end."""
    current_request = turn_state.inputs.current_request
    if is_applied(status):
        state.serving, state.requests = _find_open_requests(turn_state, end)
        if current_request or turn_state.pending_indexes:  # the results are stored with the open request
            are_stored = any(open_request.results == state.results for open_request in state.requests)
            remaining = () if are_stored else state.results
            state.results, state.in_vain = tuple(filter(is_notice, remaining)), {}
    elif current_request:
        if status == "failed" or (turn_state.write_off and current_request.counts_open_budgets):
            calls = len(turn_state.answers)
            counts, cost = is_fruitless(current_request, error, calls), turn_state.cost
            state.requests = current_request.state_after_failure(state.requests, cost, counts=counts, calls=calls)
        if turn_state.failure_entries:
            state.requests = tuple(item for item in state.requests if item.key != current_request.begun.key)


def _find_open_requests(turn_state: TurnState, end: End) -> tuple[str, tuple[OpenRequest, ...]]:
    """Return the request of the turn, and the open requests after the turn."""
    current_request, entries = turn_state.inputs.current_request, turn_state.entries
    earlier_requests = turn_state.inputs.state.requests
    calls = {  # by entry with an awaited answer: the number, from 1, among the unshown results
        entry: sum(number < position for number in turn_state.results.unshown_indexes)
        for entry, position in turn_state.pending_indexes.items()
        if position > turn_state.results.shown_count
    }

    def advance(request: CurrentRequest, asking: Sequence[OutboxEntry], **spending: Any) -> OpenRequest:
        return request.state_after_turn(
            asking,
            turn_state.results.unshown,
            calls=calls,
            pending_states=turn_state.pending_states,
            keep_dialogue=partial(make_dialogue, turn_state),
            **spending,
        )

    if current_request is None:
        own_entries = [entry for entry in entries if entry.identity in calls]
        own_requests = [advance(OWN_REQUESTS, own_entries)] if own_entries else []
        return "", (*_find_still_open(turn_state), *own_requests)
    other_requests = tuple(item for item in earlier_requests if item.key != current_request.begun.key)
    is_served = turn_state.is_answered or turn_state.is_handed_off
    if is_served if current_request.request else not turn_state.results.actionable:
        pending = [entry for entry in entries if entry.identity in turn_state.pending_states]
        own_entries = [entry for entry in pending if "parent" not in entry.payload]
        own_requests = [advance(OWN_REQUESTS, own_entries)] if own_entries else []
        return current_request.request, (*other_requests, *own_requests)
    counts, model_calls = turn_state.repeats.repeat_counts, len(turn_state.answers)
    updated = advance(current_request, entries, cost=turn_state.cost, failed_attempts=counts, model_calls=model_calls)
    is_stuck = end == "unanswered" and not (turn_state.may_skip_response or turn_state.strategy_turn.note)
    is_stuck = is_stuck and not (updated.open_sub_requests or updated.results or turn_state.repeats.has_learned)
    return current_request.request, (*other_requests, replace(updated, stands_still=is_stuck))


def _find_still_open(turn_state: TurnState) -> tuple[OpenRequest, ...]:
    """Return the agent's open requests, including requests shown to the turn and left unanswered."""
    requests, shown = turn_state.inputs.state.requests, turn_state.inputs.open_requests
    earlier = tuple(replace(item, stands_still=False) if item.stands_still else item for item in requests)
    responses = (entry for entry in turn_state.entries if entry.kind == "response")
    answered = {name for entry in responses for name in parse_references(entry.payload.get("reply_to"))}
    unanswered = (item for item in shown if answered.isdisjoint((item, item.rpartition("_")[2])))
    continued = (item for item in earlier if item.is_worth_recording or not shown)
    return (*continued, *(OpenRequest(request=identity) for identity in unanswered))
