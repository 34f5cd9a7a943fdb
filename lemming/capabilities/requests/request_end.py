"""The end of a turn with requests: each of them is answered, unless the agent waits for an outcome. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import floor

from lemming.ext import Allowed, EndTurn, Interception, TurnView
from lemming.kernel.base.contract import NewEntry
from lemming.kernel.base.errors import error_name, is_final
from lemming.kernel.journal.turn_report import End, Status
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.obligations.current_request import (
    MAX_FAILURES,
    MAX_TURNS,
    CurrentRequest,
    has_handoff,
    is_fruitless,
    is_question,
)
from lemming.kernel.obligations.request_payloads import get_budget
from lemming.kernel.turn.turn_end import REPETITION_REMARK


class RequestEnd:
    """The end of one turn, for its request or the requests shown."""

    def __init__(self, turn: TurnView) -> None:
        self._turn = turn

    def intercept(self, effect: EndTurn) -> Interception:
        """Pass on the end with the entries of the turn, and report the charge to the budget."""
        turn, request = self._turn, self._turn.request
        is_served = request is not None and bool(request.request)
        ended = self._end_request(effect, request) if request and is_served else self._fail_shown_requests(effect)
        outcome = yield ended
        if not isinstance(outcome, Allowed):  # the request has its answer whatever others say of the end
            outcome = Allowed(ended)
        if request and is_served and request.budget is not None and request.counts_open_budgets:
            left = outcome.effect if isinstance(outcome.effect, EndTurn) else ended
            charged = _compute_charge(request, left.failure_entries or left.entries, turn.cost)
            budget = {"of": request.budget, "charged": charged}
            turn.report("budget", budget if request.unit == "credits" else {**budget, "unit": request.unit})
        return outcome

    def _end_request(self, effect: EndTurn, request: CurrentRequest) -> EndTurn:
        """Return the end of a turn for a request, with an answer unless the agent waits for an outcome."""
        turn, error, entries = self._turn, effect.error, [*effect.entries]
        status = turn.get_status(effect.end)
        may_stay_open = status == "waiting" or turn.asks_persons or turn.can_skip_response
        if error and is_final(error) and not may_stay_open:  # no reader may see half of an answer
            failure = self._make_failure(request, f"{error_name(error)}: {error}", [], error.at)
            left = (*_add_budgets(request, [failure], turn.cost),)
            if status == "failed":  # and is reported as such to the operator
                return replace(effect, entries=(), failure_entries=left, drops_files=True)
            return replace(effect, end="done", entries=left, drops_files=True)
        if status == "skipped":
            return effect
        if status == "failed":
            if not (is_fruitless(request, error, len(turn.answers)) and request.begun.failures + 1 >= MAX_FAILURES):
                return effect
            effect = replace(effect, drops_files=True)
            entries.append(self._make_failure(request, f"{MAX_FAILURES} turns came to nothing: {error}", entries))
        is_handed_off = has_handoff(entries)
        is_settled = is_handed_off or request.is_answered(entries) or request.is_in_progress(entries)
        if turn.answer_violation and not is_settled:
            reason = f"the answer is not what was asked for: {turn.answer_violation}"
            entries.append(self._make_failure(request, reason, entries))
        if not (is_handed_off or turn.can_skip_response):
            entries = self._fail_if_stuck(request, effect.end, status, entries)
        entries = _add_budgets(request, entries, turn.cost)
        ended = replace(effect, entries=(*entries,))
        if is_handed_off:
            return replace(ended, end="handed_on")
        if request.is_answered(entries):
            for entry in request.find_sub_requests(entries):
                turn.remark(f"{entry.id}: asked in vain, for this turn answers")
            return ended if status == "done" else replace(ended, end="done")
        return ended if status == "waiting" else replace(ended, end="unanswered")

    def _fail_if_stuck(
        self, request: CurrentRequest, end: End, status: Status, entries: list[OutboxEntry]
    ) -> list[OutboxEntry]:
        """Return the entries with the agent's text as the answer, or with a failure if further turns would not help."""
        turn = self._turn
        if not request.is_answered(entries) and status == "done" and not request.is_in_progress(entries):
            if answered := request.mark_answer(entries):
                entries = answered
            else:
                reason = REPETITION_REMARK if turn.is_cycling or end == "repeats" else "no answer was given"
                entries = [*entries, self._make_failure(request, reason, entries)]
        if turn.is_cycling and not (request.is_answered(entries) or turn.awaited_count):
            entries = [*entries, self._make_failure(request, REPETITION_REMARK, entries)]
        reason = request.call_limit_reason(len(turn.answers))
        if not reason and request.begun.turns + 1 >= MAX_TURNS:
            reason = f"no answer was given in {MAX_TURNS} turns"
        if reason and not request.is_answered(entries):
            entries = [*entries, self._make_failure(request, reason, entries)]
        return entries

    def _make_failure(
        self, request: CurrentRequest, reason: str, entries: Sequence[OutboxEntry], at: str = ""
    ) -> OutboxEntry:
        """Return the entry about the failure of the request, at time `at` if known."""
        turn = self._turn
        turn.remark(f"the request has failed: {reason}")
        at = at or (turn.answers[-1].at if turn.answers else request.at)
        return turn.make_entry(request.make_failure(reason), entries, at)

    def _fail_shown_requests(self, effect: EndTurn) -> EndTurn:
        """Answer the shown requests with a failure if a rejection is permanent: it would repeat in each turn.

        The turn's other output is discarded: no reader must find half of an answer.
        """
        turn, error = self._turn, effect.error
        if not (error and error.at and is_final(error) and turn.get_status(effect.end) == "failed"):
            return effect
        entries: list[OutboxEntry] = []
        for identity, asker in {**turn.inputs.open_requests, **turn.inputs.said_requests}.items():
            payload = {"reply_to": identity.rpartition("_")[2], "target": asker, "status": "failed"}
            new = NewEntry("response", {**payload, "text": f"{error_name(error)}: {error}"}, [])
            entries.append(turn.make_entry(new, entries, error.at))
        return replace(effect, entries=(), failure_entries=(*entries,), drops_files=True)


def _add_budgets(request: CurrentRequest, entries: list[OutboxEntry], cost: float) -> list[OutboxEntry]:
    """Return a turn's entries with budgets added to questions and the amount spent added to the answer.

    `cost` is the cost of the turn. The remaining budget is split evenly among all targets, with one part
    reserved for the answer. A handoff receives the budget not allotted to other entries.
    """
    if request.budget is None:
        return entries
    parts = sum(len(entry.targets) if request.counts_open_budgets else 1 for entry in entries if is_question(entry))
    remaining = request.make_amount(max(round(request.budget - request.spent - cost, 6), 0.0))
    share = remaining.split_budget(parts + 1).number
    if not request.counts_open_budgets:  # rounded as in the records of earlier versions
        share = round(remaining.number / (parts + 1), 6)
        share = float(floor(share)) if request.unit == "tokens" else share
    entries = [_add_share(request, entry, share) if is_question(entry) else entry for entry in entries]
    charged = _compute_charge(request, entries, cost)
    return [_add_remainder(request, entry, charged) for entry in entries]


def _add_share(request: CurrentRequest, entry: OutboxEntry, share: float) -> OutboxEntry:
    if request.counts_open_budgets:  # the recipients of one entry share its budget
        share = request.make_amount(share * len(entry.targets)).split_budget(1).number
    budget = get_budget(entry.payload)
    if budget is not None and budget.unit == request.unit:
        share = min(budget.number, share)
    return replace(entry, payload={**entry.payload, "budget": request.make_amount(share).file_value})


def _compute_charge(request: CurrentRequest, entries: Sequence[OutboxEntry], cost: float) -> float:
    """Return the amount charged after a turn with these entries, including the entries' shares."""
    shares = (request.get_allotted(entry) for entry in entries if is_question(entry) and request.counts_open_budgets)
    return round(request.spent + cost + sum(shares), 6)


def _add_remainder(request: CurrentRequest, entry: OutboxEntry, charged: float) -> OutboxEntry:
    if request.is_about_request(entry, "response"):
        return replace(entry, payload={**entry.payload, "spent": request.make_amount(charged).file_value})
    if "hands_on" in entry.payload:
        remaining = max(round((request.budget or 0.0) - charged, 6), 0.0)
        return replace(entry, payload={**entry.payload, "budget": request.make_amount(remaining).file_value})
    return entry
