"""Requests in a turn: its entries as requests and answers, and the requests left after it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from lemming.kernel.base.contract import NewEntry, TurnReply
from lemming.kernel.base.errors import ContractError, LemmingError, ToolError, TurnTooLong, error_name, is_final
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.open_requests import OpenRequest
from lemming.kernel.journal.turn_report import End, Status
from lemming.kernel.journal.write_offs import NO_WRITE_OFF
from lemming.kernel.messages import OutboxEntry, parse_targets
from lemming.kernel.obligations.request_payloads import parse_references
from lemming.kernel.plugins.capability_table import REQUESTS
from lemming.kernel.turn.current_request import MAX_FAILURES, MAX_TURNS, NOT_ANSWERED, OWN_REQUESTS, CurrentRequest
from lemming.kernel.turn.dialogue import make_dialogue
from lemming.kernel.turn.tool_results import is_notice
from lemming.kernel.turn.turn_effects import Rejected
from lemming.kernel.turn.turn_end import REPETITION_REMARK, end_repeating_turn, is_applied
from lemming.kernel.turn.turn_state import TurnState


class TurnRequests:
    """Requests in one turn: the request that the turn serves, if any, and the agent's open and shown requests."""

    _was_fruitless = False  # the model answered, and it was of no use, or its time was over before it did

    def __init__(self, turn_state: TurnState) -> None:
        self.turn_state, self._snapshot = turn_state, turn_state.inputs.given.get(REQUESTS, {})
        self._current, turn_state.has_answer = turn_state.task, "answered" in self._snapshot

    @property
    def _current_task(self) -> CurrentRequest | None:
        """The current request, or None if the turn is only for the agent's own sub-requests."""
        return self._current if self._current and self._current.request else None

    def abandon(self, reason: str, at: str = "") -> None:
        """Add an entry that reports the failure of the request, at time `at` if known."""
        turn_state, current = self.turn_state, self._current
        assert current, "only a request is given up"
        at = at or (turn_state.answers[-1].at if turn_state.answers else current.at)
        turn_state.remarks.append(f"the request has failed: {reason}"[:500])
        failure = turn_state.to_entry(current.make_failure(reason), turn_state.next_id(), at)
        turn_state.entries = [*turn_state.entries, failure]

    @property
    def has_handoff(self) -> bool:
        """True if an entry of the turn hands the request to another agent."""
        return any(entry.kind == "request" and "hands_on" in entry.payload for entry in self.turn_state.entries)

    def start(self) -> End | None:
        """Abandon a request before any model call if no reply could change the outcome."""
        if self._current and (reason := self._current.failure_reason):
            self.abandon(reason)
            return "done"
        return None

    def require_content(self, reply: TurnReply) -> None:
        """Raise `ContractError` for an empty reply if the turn has a request to answer."""
        has_content = reply.outbox_entries or reply.tool_calls or reply.goes_on or self.turn_state.entries
        if self._current_task and not (has_content or self.turn_state.may_skip_response):
            raise ContractError(NOT_ANSWERED)

    def complete_entry(self, new_entry: NewEntry, *, alone: bool) -> NewEntry | Rejected:
        """Return an entry with the `reply_to` or parent request filled in; reject a cycle of requests."""
        inputs, current = self.turn_state.inputs, self._current
        if new_entry.kind == "request" and "hands_on" in new_entry.payload:
            return self._check_handoff(new_entry)
        if current and not alone:
            new_entry = current.complete_entry(new_entry, inputs.tick, inputs.agent.name)
        new_entry = address_answer(new_entry, inputs.open_requests)
        if current is None or new_entry.kind != "request":
            return new_entry
        targets, unbounded = parse_targets(new_entry.payload), self._snapshot.get("beyond_budget", ())
        if reason := current.sub_request_blocker(inputs.agent.name, targets):
            return Rejected(reason)
        if name := next((target for target in sorted(targets) if target in unbounded), ""):
            return Rejected(
                f"refused: what you were asked has a budget, and {name} takes what you ask in turns for its whole "
                f'inbox, which no budget bounds; name {name} in "team" of your resume and call ask_{name}'
            )
        return new_entry

    def _check_handoff(self, new_entry: NewEntry) -> NewEntry | Rejected:
        """Return a handoff entry as completed by the engine. Reject any other entry with `hands_on`.

        A handoff transfers the remaining budget and the duty to answer. Therefore the entry must move the request
        of this turn, at most once, to an agent listed in `hand_to`. The entry may come from a call of
        `hand_to_*`, from the approval of such a call, or from the model's own text.
        """
        inputs, current, payload = self.turn_state.inputs, self._current_task, new_entry.payload
        team, text, target = inputs.agent.extensions.get("team"), payload.get("text"), payload.get("target")
        is_own = current is not None and payload["hands_on"] == current.reference and not self.has_handoff
        if current is None or not is_own or team is None or target not in team.hand_to or not isinstance(text, str):
            return Rejected(
                "refused: hands_on is the engine's to write; call hand_to_NAME to hand on what was asked of you"
            )
        if current.hops >= team.max_hops:
            return Rejected(f"refused: it was handed on {current.hops} times")
        handoff = current.make_handoff(text, str(target), inputs.tick)
        return new_entry._replace(payload={**payload, **handoff.payload})

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
        turn_state, task, status = self.turn_state, self._current_task, self.turn_state.get_status(end)
        if task is None:
            if error and error.at and is_final(error) and status == "failed":
                self._fail_shown_requests(error)
            return end_repeating_turn(turn_state, end)
        turn_state.is_handed_off = self.has_handoff
        may_stay_open = status == "waiting" or turn_state.asks_persons or turn_state.may_skip_response
        if error and is_final(error) and not may_stay_open:
            turn_state.discard_writes()  # no reader may see half of an answer
            self.abandon(f"{error_name(error)}: {error}", error.at)
            entries = task.add_budgets(turn_state.entries, self._cost)
            if status == "failed":  # and is reported as such to the operator
                turn_state.failure_entries, turn_state.entries = entries, []
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
            self.abandon(f"{MAX_FAILURES} turns came to nothing: {error}")
        is_settled = turn_state.is_handed_off or self.is_answered or task.is_in_progress(turn_state.entries)
        if turn_state.answer_violation and not is_settled:
            self.abandon(f"the answer is not what was asked for: {turn_state.answer_violation}")
        if not (turn_state.is_handed_off or turn_state.may_skip_response):
            self._abandon_if_stuck(task, end, status)
        turn_state.entries = task.add_budgets(turn_state.entries, self._cost)
        if turn_state.is_handed_off:
            return "handed_on"
        if self.is_answered:
            unneeded = task.find_sub_requests(turn_state.entries)
            turn_state.remarks += [f"{entry.id}: asked in vain, for this turn answers" for entry in unneeded]
            return end if status == "done" else "done"
        return end if status == "waiting" else "unanswered"

    def _abandon_if_stuck(self, task: CurrentRequest, end: End, status: Status) -> None:
        """Answer the request with the agent's text, or abandon the request if further turns would not help."""
        turn_state, is_cycling = self.turn_state, self.turn_state.repeats.is_cycling
        if not self.is_answered and status == "done" and not task.is_in_progress(turn_state.entries):
            if answered := task.mark_answer(turn_state.entries):
                turn_state.entries = answered
            else:
                self.abandon(REPETITION_REMARK if is_cycling or end == "repeats" else "no answer was given")
        if is_cycling and not (self.is_answered or turn_state.pending_indexes):
            self.abandon(REPETITION_REMARK)
        reason = task.call_limit_reason(len(turn_state.answers))
        if not reason and task.begun.turns + 1 >= MAX_TURNS:
            reason = f"no answer was given in {MAX_TURNS} turns"
        if reason and not self.is_answered:
            self.abandon(reason)

    def _fail_shown_requests(self, error: LemmingError) -> None:
        """Answer the shown requests with a failure, because a permanent rejection would repeat in each turn.

        The turn's other output is discarded: no reader must find half of an answer.
        """
        turn_state, inputs = self.turn_state, self.turn_state.inputs
        turn_state.discard_writes()
        for identity, asker in {**inputs.open_requests, **inputs.said_requests}.items():
            payload = {"reply_to": identity.rpartition("_")[2], "target": asker, "status": "failed"}
            new = NewEntry("response", {**payload, "text": f"{error_name(error)}: {error}"}, [])
            turn_state.entries.append(turn_state.to_entry(new, turn_state.next_id(), error.at))
        turn_state.failure_entries, turn_state.entries = turn_state.entries, []

    def wait_reason(self) -> str:
        """Return a text with the agents asked last, empty if the agent waits for none."""
        if self.turn_state.only_asks:
            return ""
        last_requests = self._requests_after_turn("done")[1][-1:]
        names = {item.to for open_request in last_requests for item in open_request.open_sub_requests}
        return f"waits for {', '.join(sorted(names))}" if names else ""

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
            state.requests = tuple(item for item in state.requests if item.key != current.begun.key)

    def _requests_after_turn(self, end: End) -> tuple[str, tuple[OpenRequest, ...]]:
        """Return the request of the turn, and the open requests after the turn."""
        turn_state, current, entries = self.turn_state, self._current, self.turn_state.entries
        earlier_requests = turn_state.inputs.state.requests
        calls = {  # by entry with an awaited answer: the number, from 1, among the unshown results
            entry: sum(number < position for number in turn_state.unshown_indexes)
            for entry, position in turn_state.pending_indexes.items()
            if position > turn_state.shown_count
        }
        if current is None:
            own_entries = [entry for entry in entries if entry.identity in calls]
            still_open = self._find_still_open(earlier_requests)
            return "", (*still_open, *self._list_own_requests(own_entries, calls))
        other_requests = tuple(item for item in earlier_requests if item.key != current.begun.key)
        is_served = self.is_answered or turn_state.is_handed_off
        if is_served if current.request else not turn_state.actionable_results:
            pending = [entry for entry in entries if entry.identity in turn_state.pending_states]
            own_entries = [entry for entry in pending if "parent" not in entry.payload]
            return current.request, (*other_requests, *self._list_own_requests(own_entries, calls))
        updated = current.state_after_turn(
            entries,
            turn_state.unshown_results,
            calls=calls,
            pending_states=turn_state.pending_states,
            keep_dialogue=partial(make_dialogue, turn_state),
            cost=self._cost,
            failed_attempts=turn_state.repeats.repeat_counts,
            model_calls=len(turn_state.answers),
        )
        return current.request, (*other_requests, replace(updated, stands_still=self._has_no_progress(updated, end)))

    def _has_no_progress(self, updated: OpenRequest, end: End) -> bool:
        """Return True if a turn for a request produced nothing new to continue with."""
        turn_state = self.turn_state
        if end != "unanswered" or turn_state.may_skip_response or turn_state.remaining_work:
            return False
        return not (updated.open_sub_requests or updated.results or turn_state.repeats.has_learned)

    def _find_still_open(self, earlier_requests: Iterable[OpenRequest]) -> tuple[OpenRequest, ...]:
        """Return the agent's open requests, including requests shown to the turn and left unanswered."""
        earlier = tuple(replace(item, stands_still=False) if item.stands_still else item for item in earlier_requests)
        if not (shown := self.turn_state.inputs.open_requests):
            return earlier
        responses = (entry for entry in self.turn_state.entries if entry.kind == "response")
        answered = {name for entry in responses for name in parse_references(entry.payload.get("reply_to"))}
        unanswered = (item for item in shown if answered.isdisjoint((item, item.rpartition("_")[2])))
        continued = (item for item in earlier if item.is_worth_recording)
        return (*continued, *(OpenRequest(request=identity) for identity in unanswered))

    def _list_own_requests(self, entries: Sequence[OutboxEntry], calls: Mapping[str, int]) -> tuple[OpenRequest, ...]:
        """Return the open request for a turn's sub-requests on the agent's own account, if any.

        `calls`: the index (from 1) among the unshown results to which each entry's answer belongs.
        """
        if not entries:
            return ()
        results, pending_states = self.turn_state.unshown_results, self.turn_state.pending_states
        keep = partial(make_dialogue, self.turn_state)
        return (
            OWN_REQUESTS.state_after_turn(
                entries, results, calls=calls, pending_states=pending_states, keep_dialogue=keep
            ),
        )


def address_answer(new_entry: NewEntry, open_requests: Mapping[str, str]) -> NewEntry:
    """Return an answer addressed to the asker. An answer without a reference goes to the only open request.

    `open_requests`: the asker of each request, by the request's identity.
    """
    reply_to = new_entry.payload.get("reply_to")
    names = [*open_requests] if reply_to is None else parse_references(reply_to)
    matches = [identity for identity in open_requests if identity in names or identity.rpartition("_")[2] in names]
    if new_entry.kind != "response" or len(matches) != 1:
        return new_entry
    reply_fields = {"reply_to": matches[0].rpartition("_")[2], "target": open_requests[matches[0]]}
    return new_entry._replace(payload={**new_entry.payload, **reply_fields})
