"""Requests in a turn: its entries as requests and answers, and the requests left after it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from lemming.kernel.base.contract import NewEntry, TurnReply
from lemming.kernel.base.errors import ContractError, LemmingError, ToolError, TurnTooLong, error_name, is_final
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.open_requests import OpenRequest
from lemming.kernel.journal.turn_report import End, Status
from lemming.kernel.journal.write_offs import NO_WRITE_OFF
from lemming.kernel.messages import OutboxEntry, parse_targets
from lemming.kernel.turn.current_request import MAX_FAILURES, MAX_TURNS, NOT_ANSWERED, CurrentRequest
from lemming.kernel.turn.dialogue import make_dialogue
from lemming.kernel.turn.handoffs import check_handoff, has_handoff, unbounded_agent_reason
from lemming.kernel.turn.notices import is_notice
from lemming.kernel.turn.turn_effects import Rejected
from lemming.kernel.turn.turn_statuses import REPETITION_REMARK, end_repeating_turn, is_applied
from lemming.kernel.turn.unfinished_requests import (
    address_answer,
    find_still_open,
    index_awaited_results,
    list_own_requests,
)
from lemming.kernel.turn.visible_requests import fail_shown_requests

if TYPE_CHECKING:
    from lemming.kernel.turn.turn_state import TurnState

REQUESTS = "requests"


def get_current_request(turn_state: TurnState) -> CurrentRequest | None:
    """Return the current request of a turn, or None if the turn serves no request."""
    return turn_state.task if isinstance(turn_state.task, CurrentRequest) else None


def abandon_request(turn_state: TurnState, reason: str, at: str = "") -> list[OutboxEntry]:
    """Return the turn's entries plus an entry reporting the failure of the request, at time `at` if known."""
    current = get_current_request(turn_state)
    assert current, "only a request is given up"
    new_entry = current.make_failure(reason)
    at = at or (turn_state.answers[-1].at if turn_state.answers else current.at)
    turn_state.remarks.append(f"the request has failed: {reason}"[:500])
    return [*turn_state.entries, turn_state.to_entry(new_entry, turn_state.next_id(), at)]


class TurnRequests:
    """Requests in one turn: the request that the turn serves, if any, and the agent's open and shown requests."""

    _was_fruitless = False  # the model answered, and it was of no use, or its time was over before it did

    def __init__(self, turn_state: TurnState) -> None:
        self.turn_state, self._snapshot = turn_state, turn_state.inputs.given.get(REQUESTS, {})
        self._current, turn_state.has_answer = get_current_request(turn_state), "answered" in self._snapshot

    @property
    def _current_task(self) -> CurrentRequest | None:
        """The current request, or None if the turn is only for the agent's own sub-requests."""
        return self._current if self._current and self._current.request else None

    def abandon(self, reason: str) -> list[OutboxEntry]:
        """Return the turn's entries and one that reports the failure of the request."""
        return abandon_request(self.turn_state, reason)

    @property
    def has_handoff(self) -> bool:
        """True if an entry of the turn hands the request to another agent."""
        return has_handoff(self.turn_state.entries)

    def start(self) -> End | None:
        """Abandon a request before any model call if no reply could change the outcome."""
        if self._current and (reason := self._current.failure_reason):
            self.turn_state.entries = abandon_request(self.turn_state, reason)
            return "done"
        return None

    def require_content(self, reply: TurnReply) -> None:
        """Raise `ContractError` for an empty reply if the turn has a request to answer."""
        has_content = reply.outbox_entries or reply.tool_calls or reply.goes_on or self.turn_state.entries
        if self._current_task and not (has_content or self.turn_state.can_skip_response):
            raise ContractError(NOT_ANSWERED)

    def complete_entry(self, new_entry: NewEntry, *, alone: bool) -> NewEntry | Rejected:
        """Return an entry with the `reply_to` or parent request filled in; reject a cycle of requests."""
        inputs = self.turn_state.inputs
        if new_entry.kind == "request" and "hands_on" in new_entry.payload:
            return check_handoff(self.turn_state, self._current_task, new_entry)
        if self._current and not alone:
            new_entry = self._current.complete_entry(new_entry, inputs.tick, inputs.agent.name)
        new_entry = address_answer(new_entry, inputs.open_requests)
        if self._current is None or new_entry.kind != "request":
            return new_entry
        reason = self._current.sub_request_blocker(inputs.agent.name, parse_targets(new_entry.payload))
        reason = reason or unbounded_agent_reason(self._snapshot.get("beyond_budget", ()), new_entry)
        return Rejected(reason) if reason else new_entry

    @property
    def is_answered(self) -> bool:
        """True if the current request of the turn has an answer."""
        return self._current is not None and self._current.is_answered(self.turn_state.entries)

    @property
    def _cost(self) -> float:
        """The cost of the turn so far, in the unit of the current request's budget."""
        if self._current is None:
            return 0.0
        write_off = self.turn_state.write_off if self._current.counts_open_budgets else NO_WRITE_OFF
        return self._current.sum_costs(self.turn_state.answers, write_off)

    def report_budget(self) -> None:
        """Add the amount charged to the request's budget to the turn's report."""
        turn_state, task = self.turn_state, self._current_task
        if task and task.budget is not None and task.counts_open_budgets:
            entries = turn_state.failure_entries or turn_state.entries
            budget = {"of": task.budget, "charged": task.compute_charge(entries, self._cost)}
            turn_state.report_fields["budget"] = budget if task.unit == "credits" else {**budget, "unit": task.unit}

    # --- end of the turn --------------------------------------------------------------------------

    def end_turn(self, end: End, error: LemmingError | None) -> End:
        """Ensure an answer to the current request, unless the agent waits for an outcome."""
        if self._current_task is None:
            if error and error.at and is_final(error) and self.turn_state.get_status(end) == "failed":
                fail_shown_requests(self.turn_state, error)
            return end_repeating_turn(self.turn_state, end)
        turn_state, task = self.turn_state, self._current_task
        turn_state.is_handed_off = has_handoff(turn_state.entries)
        status = turn_state.get_status(end)
        if (
            error
            and is_final(error)
            and not (status == "waiting" or turn_state.asks_persons or turn_state.can_skip_response)
        ):
            # the turn's entries go with it: no reader may see half of an answer
            turn_state.entries, turn_state.staged, turn_state.memory = [], {}, {}
            reason = f"{error_name(error)}: {error}"
            entries = task.add_budgets(abandon_request(turn_state, reason, error.at), self._cost)
            if status == "failed":  # and is reported as such to the operator
                turn_state.failure_entries = entries
                return end
            turn_state.entries = entries
            return "done"
        if status == "skipped":
            return end
        if status == "failed":
            had_useless_reply = isinstance(error, (ContractError, ToolError)) and bool(turn_state.answers)
            self._was_fruitless = had_useless_reply or isinstance(error, TurnTooLong)
            if not (self._was_fruitless and task.begun.failures + 1 >= MAX_FAILURES):
                return end
            turn_state.staged, turn_state.memory = {}, {}
            turn_state.entries = abandon_request(turn_state, f"{MAX_FAILURES} turns came to nothing: {error}")
        if turn_state.answer_violation and not (
            turn_state.is_handed_off or turn_state.is_answered or task.is_in_progress(turn_state.entries)
        ):
            turn_state.entries = abandon_request(
                turn_state, f"the answer is not what was asked for: {turn_state.answer_violation}"
            )
        if not (turn_state.is_handed_off or turn_state.can_skip_response):
            self._abandon_if_stuck(task, end, status)
        turn_state.entries = task.add_budgets(turn_state.entries, self._cost)
        if turn_state.is_handed_off:
            return "handed_on"
        if turn_state.is_answered:
            unneeded = task.find_sub_requests(turn_state.entries)
            turn_state.remarks += [f"{entry.id}: asked in vain, for this turn answers" for entry in unneeded]
            return end if status == "done" else "done"
        return end if status == "waiting" else "unanswered"

    def _abandon_if_stuck(self, task: CurrentRequest, end: End, status: Status) -> None:
        """Answer the request with the agent's text, or abandon the request if further turns would not help."""
        turn_state = self.turn_state
        if not turn_state.is_answered and status == "done" and not task.is_in_progress(turn_state.entries):
            reason = REPETITION_REMARK if turn_state.repeats.is_cycling or end == "repeats" else "no answer was given"
            turn_state.entries = task.mark_answer(turn_state.entries) or abandon_request(turn_state, reason)
        if turn_state.repeats.is_cycling and not (turn_state.is_answered or turn_state.pending_indexes):
            turn_state.entries = abandon_request(turn_state, REPETITION_REMARK)
        reason = task.call_limit_reason(len(turn_state.answers))
        if not reason and task.begun.turns + 1 >= MAX_TURNS:
            reason = f"no answer was given in {MAX_TURNS} turns"
        if reason and not turn_state.is_answered:
            turn_state.entries = abandon_request(turn_state, reason)

    def wait_reason(self) -> str:
        """Return a text with the agents asked last, empty if the agent waits for none."""
        if self.turn_state.only_asks:
            return ""
        sub_requests = [
            sub_request
            for open_request in self._requests_after_turn("done")[1][-1:]
            for sub_request in open_request.open_sub_requests
        ]
        return (
            f"waits for {', '.join(sorted({sub_request.to for sub_request in sub_requests}))}" if sub_requests else ""
        )

    # --- open requests ----------------------------------------------------------------------------

    def update_agent_state(self, state: AgentState, status: Status, end: End) -> None:
        """Record the current request of the turn, and the open requests after the turn."""
        turn_state, current = self.turn_state, self._current
        if is_applied(status):
            state.serving, state.requests = self._requests_after_turn(end)
            if current or turn_state.pending_indexes:  # the results are stored with the open request
                are_stored = any(open_request.results == state.results for open_request in state.requests)
                remaining = () if are_stored else state.results
                state.results, state.in_vain = tuple(filter(is_notice, remaining)), {}
            return
        if current and (status == "failed" or (turn_state.write_off and current.counts_open_budgets)):
            counts, calls = self._was_fruitless, len(turn_state.answers)
            state.requests = current.state_after_failure(state.requests, self._cost, counts=counts, calls=calls)
        if current and turn_state.failure_entries:
            state.requests = tuple(
                open_request for open_request in state.requests if open_request.key != current.begun.key
            )

    def _requests_after_turn(self, end: End) -> tuple[str, tuple[OpenRequest, ...]]:
        """Return the request of the turn, and the open requests after the turn."""
        turn_state, current = self.turn_state, self._current
        earlier_requests = turn_state.inputs.state.requests
        calls = index_awaited_results(turn_state)
        if current is None:
            own_entries = [entry for entry in turn_state.entries if entry.identity in calls]
            return "", (
                *find_still_open(turn_state, earlier_requests),
                *list_own_requests(turn_state, own_entries, calls),
            )
        other_requests = tuple(
            open_request for open_request in earlier_requests if open_request.key != current.begun.key
        )
        is_closed = (
            turn_state.is_answered or turn_state.is_handed_off if current.request else not turn_state.actionable_results
        )
        if is_closed:
            own_entries = [
                own_entry
                for own_entry in turn_state.entries
                if own_entry.identity in turn_state.pending_states and "parent" not in own_entry.payload
            ]
            return current.request, (*other_requests, *list_own_requests(turn_state, own_entries, calls))
        results, failed_attempts, replies = (
            turn_state.unshown_results,
            turn_state.repeats.repeat_counts,
            len(turn_state.answers),
        )
        keep = partial(make_dialogue, turn_state)
        updated = current.state_after_turn(
            turn_state.entries, results, calls, self._cost, turn_state.pending_states, failed_attempts, replies, keep
        )
        return current.request, (*other_requests, replace(updated, stands_still=self._has_no_progress(updated, end)))

    def _has_no_progress(self, updated: OpenRequest, end: End) -> bool:
        """Return True if a turn for a request produced nothing new to continue with."""
        turn_state = self.turn_state
        if end != "unanswered" or turn_state.can_skip_response or turn_state.remaining_work:
            return False
        return not (updated.open_sub_requests or updated.results or turn_state.repeats.has_learned)
