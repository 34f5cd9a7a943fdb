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
        turn, task = self._turn, self._turn.request
        is_served = task is not None and bool(task.request)
        ended = self._end_request(effect, task) if task and is_served else self._fail_shown_requests(effect)
        outcome = yield ended
        if not isinstance(outcome, Allowed):  # the request has its answer whatever others say of the end
            outcome = Allowed(ended)
        if task and is_served and task.budget is not None and task.counts_open_budgets:
            left = outcome.effect if isinstance(outcome.effect, EndTurn) else ended
            charged = _compute_charge(task, left.failure_entries or left.entries, turn.cost)
            budget = {"of": task.budget, "charged": charged}
            turn.report("budget", budget if task.unit == "credits" else {**budget, "unit": task.unit})
        return outcome

    def _end_request(self, effect: EndTurn, task: CurrentRequest) -> EndTurn:
        """Return the end of a turn for a request, with an answer unless the agent waits for an outcome."""
        turn, error, entries = self._turn, effect.error, [*effect.entries]
        status = turn.get_status(effect.end)
        may_stay_open = status == "waiting" or turn.asks_persons or turn.can_skip_response
        if error and is_final(error) and not may_stay_open:  # no reader may see half of an answer
            failure = self._make_failure(task, f"{error_name(error)}: {error}", [], error.at)
            left = (*_add_budgets(task, [failure], turn.cost),)
            if status == "failed":  # and is reported as such to the operator
                return replace(effect, entries=(), failure_entries=left, drops_files=True)
            return replace(effect, end="done", entries=left, drops_files=True)
        if status == "skipped":
            return effect
        if status == "failed":
            if not (is_fruitless(task, error, len(turn.answers)) and task.begun.failures + 1 >= MAX_FAILURES):
                return effect
            effect = replace(effect, drops_files=True)
            entries.append(self._make_failure(task, f"{MAX_FAILURES} turns came to nothing: {error}", entries))
        is_handed_off = has_handoff(entries)
        is_settled = is_handed_off or task.is_answered(entries) or task.is_in_progress(entries)
        if turn.answer_violation and not is_settled:
            reason = f"the answer is not what was asked for: {turn.answer_violation}"
            entries.append(self._make_failure(task, reason, entries))
        if not (is_handed_off or turn.can_skip_response):
            entries = self._fail_if_stuck(task, effect.end, status, entries)
        entries = _add_budgets(task, entries, turn.cost)
        ended = replace(effect, entries=(*entries,))
        if is_handed_off:
            return replace(ended, end="handed_on")
        if task.is_answered(entries):
            for entry in task.find_sub_requests(entries):
                turn.remark(f"{entry.id}: asked in vain, for this turn answers")
            return ended if status == "done" else replace(ended, end="done")
        return ended if status == "waiting" else replace(ended, end="unanswered")

    def _fail_if_stuck(
        self, task: CurrentRequest, end: End, status: Status, entries: list[OutboxEntry]
    ) -> list[OutboxEntry]:
        """Return the entries with the agent's text as the answer, or with a failure if further turns would not help."""
        turn = self._turn
        if not task.is_answered(entries) and status == "done" and not task.is_in_progress(entries):
            if answered := task.mark_answer(entries):
                entries = answered
            else:
                reason = REPETITION_REMARK if turn.is_cycling or end == "repeats" else "no answer was given"
                entries = [*entries, self._make_failure(task, reason, entries)]
        if turn.is_cycling and not (task.is_answered(entries) or turn.awaited_count):
            entries = [*entries, self._make_failure(task, REPETITION_REMARK, entries)]
        reason = task.call_limit_reason(len(turn.answers))
        if not reason and task.begun.turns + 1 >= MAX_TURNS:
            reason = f"no answer was given in {MAX_TURNS} turns"
        if reason and not task.is_answered(entries):
            entries = [*entries, self._make_failure(task, reason, entries)]
        return entries

    def _make_failure(
        self, task: CurrentRequest, reason: str, entries: Sequence[OutboxEntry], at: str = ""
    ) -> OutboxEntry:
        """Return the entry about the failure of the request, at time `at` if known."""
        turn = self._turn
        turn.remark(f"the request has failed: {reason}")
        at = at or (turn.answers[-1].at if turn.answers else task.at)
        return turn.make_entry(task.make_failure(reason), entries, at)

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


# --- budgets ----------------------------------------------------------------------------------------


def _add_budgets(task: CurrentRequest, entries: list[OutboxEntry], cost: float) -> list[OutboxEntry]:
    """Return a turn's entries with budgets added to questions and the amount spent added to the answer.

    `cost` is the cost of the turn. The remaining budget is split evenly among all targets, with one part
    reserved for the answer. A handoff receives the budget not allotted to other entries.
    """
    if task.budget is None:
        return entries
    parts = sum(len(entry.targets) if task.counts_open_budgets else 1 for entry in entries if is_question(entry))
    remaining = task.make_amount(max(round(task.budget - task.spent - cost, 6), 0.0))
    share = remaining.split_budget(parts + 1).number
    if not task.counts_open_budgets:  # rounded as in the records of earlier versions
        share = round(remaining.number / (parts + 1), 6)
        share = float(floor(share)) if task.unit == "tokens" else share
    entries = [_add_share(task, entry, share) if is_question(entry) else entry for entry in entries]
    charged = _compute_charge(task, entries, cost)
    return [_add_remainder(task, entry, charged) for entry in entries]


def _add_share(task: CurrentRequest, entry: OutboxEntry, share: float) -> OutboxEntry:
    if task.counts_open_budgets:  # the recipients of one entry share its budget
        share = task.make_amount(share * len(entry.targets)).split_budget(1).number
    budget = get_budget(entry.payload)
    if budget is not None and budget.unit == task.unit:
        share = min(budget.number, share)
    return replace(entry, payload={**entry.payload, "budget": task.make_amount(share).file_value})


def _compute_charge(task: CurrentRequest, entries: Sequence[OutboxEntry], cost: float) -> float:
    """Return the amount charged after a turn with these entries, including the entries' shares."""
    shares = (task.get_allotted(entry) for entry in entries if is_question(entry) and task.counts_open_budgets)
    return round(task.spent + cost + sum(shares), 6)


def _add_remainder(task: CurrentRequest, entry: OutboxEntry, charged: float) -> OutboxEntry:
    if task.is_about_request(entry, "response"):
        return replace(entry, payload={**entry.payload, "spent": task.make_amount(charged).file_value})
    if "hands_on" in entry.payload:
        remaining = max(round((task.budget or 0.0) - charged, 6), 0.0)
        return replace(entry, payload={**entry.payload, "budget": task.make_amount(remaining).file_value})
    return entry
