"""Obligations after a turn: the requests that it leaves open, and the agents that it waits for. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from lemming.kernel.base.errors import ContractError, LemmingError, ToolError, TurnTooLong
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.open_requests import OpenRequest
from lemming.kernel.journal.turn_report import End, Status
from lemming.kernel.journal.write_offs import NO_WRITE_OFF
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.obligations.current_request import OWN_REQUESTS, CurrentRequest
from lemming.kernel.obligations.request_payloads import parse_references
from lemming.kernel.turn.dialogue import make_dialogue
from lemming.kernel.turn.tool_results import is_notice

if TYPE_CHECKING:
    from lemming.kernel.turn.turn_state import TurnState


def is_applied(status: Status) -> bool:
    """Return True if the files of a turn with this status are written."""
    return status in ("done", "waiting")


def record_open_requests(
    turn_state: TurnState, state: AgentState, status: Status, end: End, error: LemmingError | None
) -> None:
    """Record the current request of the turn, and the open requests after a turn with this end."""
    current = turn_state.inputs.task
    if is_applied(status):
        state.serving, state.requests = _find_open_requests(turn_state, end)
        if current or turn_state.pending_indexes:  # the results are stored with the open request
            are_stored = any(open_request.results == state.results for open_request in state.requests)
            remaining = () if are_stored else state.results
            state.results, state.in_vain = tuple(filter(is_notice, remaining)), {}
    elif current:
        if status == "failed" or (turn_state.write_off and current.counts_open_budgets):
            calls = len(turn_state.answers)
            counts, cost = is_fruitless(current, error, calls), turn_cost(turn_state)
            state.requests = current.state_after_failure(state.requests, cost, counts=counts, calls=calls)
        if turn_state.failure_entries:
            state.requests = tuple(item for item in state.requests if item.key != current.begun.key)


def is_fruitless(task: CurrentRequest, error: LemmingError | None, answer_count: int) -> bool:
    """Return True if a failed turn counts as a failure of its request: for its answers, or for its time."""
    had_useless_reply = isinstance(error, (ContractError, ToolError)) and answer_count > 0
    return bool(task.request) and (had_useless_reply or isinstance(error, TurnTooLong))


def turn_cost(turn_state: TurnState) -> float:
    """Return the cost of the turn so far, in the unit of the current request's budget."""
    current = turn_state.inputs.task
    if current is None:
        return 0.0
    write_off = turn_state.write_off if current.counts_open_budgets else NO_WRITE_OFF
    return current.sum_costs(turn_state.answers, write_off)


def list_awaited(turn_state: TurnState) -> list[str]:
    """Return the names of the agents that the turn asked last."""
    last_requests = _find_open_requests(turn_state, "done")[1][-1:]
    return sorted({item.to for open_request in last_requests for item in open_request.open_sub_requests})


def _find_open_requests(turn_state: TurnState, end: End) -> tuple[str, tuple[OpenRequest, ...]]:
    """Return the request of the turn, and the open requests after the turn."""
    current, entries, earlier_requests = turn_state.inputs.task, turn_state.entries, turn_state.inputs.state.requests
    calls = {  # by entry with an awaited answer: the number, from 1, among the unshown results
        entry: sum(number < position for number in turn_state.unshown_indexes)
        for entry, position in turn_state.pending_indexes.items()
        if position > turn_state.shown_count
    }
    if current is None:
        own_entries = [entry for entry in entries if entry.identity in calls]
        return "", (*_find_still_open(turn_state), *_list_own_requests(turn_state, own_entries, calls))
    other_requests = tuple(item for item in earlier_requests if item.key != current.begun.key)
    is_served = turn_state.is_answered or turn_state.is_handed_off
    if is_served if current.request else not turn_state.actionable_results:
        pending = [entry for entry in entries if entry.identity in turn_state.pending_states]
        own_entries = [entry for entry in pending if "parent" not in entry.payload]
        return current.request, (*other_requests, *_list_own_requests(turn_state, own_entries, calls))
    updated = current.state_after_turn(
        entries,
        turn_state.unshown_results,
        calls=calls,
        pending_states=turn_state.pending_states,
        keep_dialogue=partial(make_dialogue, turn_state),
        cost=turn_cost(turn_state),
        failed_attempts=turn_state.repeats.repeat_counts,
        model_calls=len(turn_state.answers),
    )
    is_stuck = end == "unanswered" and not (turn_state.may_skip_response or turn_state.strategy_turn.note)
    is_stuck = is_stuck and not (updated.open_sub_requests or updated.results or turn_state.repeats.has_learned)
    return current.request, (*other_requests, replace(updated, stands_still=is_stuck))


def _find_still_open(turn_state: TurnState) -> tuple[OpenRequest, ...]:
    """Return the agent's open requests, including requests shown to the turn and left unanswered."""
    requests, shown = turn_state.inputs.state.requests, turn_state.inputs.open_requests
    earlier = tuple(replace(item, stands_still=False) if item.stands_still else item for item in requests)
    if not shown:
        return earlier
    responses = (entry for entry in turn_state.entries if entry.kind == "response")
    answered = {name for entry in responses for name in parse_references(entry.payload.get("reply_to"))}
    unanswered = (item for item in shown if answered.isdisjoint((item, item.rpartition("_")[2])))
    continued = (item for item in earlier if item.is_worth_recording)
    return (*continued, *(OpenRequest(request=identity) for identity in unanswered))


def _list_own_requests(
    turn_state: TurnState, entries: Sequence[OutboxEntry], calls: Mapping[str, int]
) -> tuple[OpenRequest, ...]:
    """Return the open request for a turn's sub-requests on the agent's own account, if any.

    `calls`: the index (from 1) among the unshown results to which each entry's answer belongs.
    """
    if not entries:
        return ()
    results, pending_states = turn_state.unshown_results, turn_state.pending_states
    keep = partial(make_dialogue, turn_state)
    return (
        OWN_REQUESTS.state_after_turn(entries, results, calls=calls, pending_states=pending_states, keep_dialogue=keep),
    )
