"""Charges to the budget of a request: turns, sub-requests and handoffs.

    charged = cost of the request's turns + actual cost of closed sub-requests + full budget of open sub-requests

No budget is exceeded, even by concurrent work: each part of a budget belongs to one agent until the agent's
last turn for the request, whose report gives the actual charge. Charges come from reports in journals and
from ledgers, never from payloads, which any author may leave incomplete. If a needed journal is missing, the
whole amount counts as spent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache, partial

from lemming.capabilities.requests.request_resolver import load_entry
from lemming.ext import TickContext
from lemming.kernel.base.errors import CorruptState
from lemming.kernel.base.turn_numbers import list_turn_keys
from lemming.kernel.inboxes.turn_agenda import Task
from lemming.kernel.journal.journal_file import journal_ticks
from lemming.kernel.journal.open_requests import SubRequest
from lemming.kernel.messages import OutboxEntry, parse_identities
from lemming.kernel.obligations.request_payloads import BudgetAmount, Unit, get_budget, required_answers
from lemming.kernel.org.organisation import Organisation
from lemming.obligations.decisions import accepts_first_answer
from lemming.obligations.request_costs import RequestCosts, TurnForRequest, turns_for_requests

_MAX_CACHED_TICKS = 2_000
_MAX_HOPS = 100


class _PastTurns:
    """The turns for requests of finished ticks, by tick: `org.get_cache(_PastTurns)`. None without a journal."""

    def __init__(self, org: Organisation) -> None:
        self.load = lru_cache(_MAX_CACHED_TICKS)(partial(turns_for_requests, org))


class Charges:
    """The charges to request budgets, as seen by an agent's turn in a tick."""

    def __init__(self, tick_context: TickContext) -> None:
        self._tick_context, self._past_turns = tick_context, tick_context.org.get_cache(_PastTurns)

    def find_budget(self, request: OutboxEntry, agent: str) -> BudgetAmount | None:
        """Return the part of a request's budget available to an agent, or None without a budget.

        Several targets share the budget evenly. If the first answer is enough, the first agent to begin may
        spend all of the budget; a later agent may spend the remainder after the others have finished.
        """
        budget = get_budget(request.payload)
        if budget is None or len(request.targets) < 2:
            return budget
        if not accepts_first_answer(request):
            return budget.split_budget(len(request.targets))
        try:
            claimed = sum(self._compute_claim(request, agent, target, budget) for target in request.targets - {agent})
        except CorruptState:  # `verify` reports the problem in the journal
            claimed = budget.number
        return budget._replace(number=max(round(budget.number - claimed, 6), 0.0))

    def _compute_claim(self, request: OutboxEntry, agent: str, other: str, budget: BudgetAmount) -> float:
        """Return the charge of another target, if the other agent's work began before this agent's."""
        turns = [turn for turn in self._list_turns(request.tick) if turn.request == request.identity]
        own_ticks = [turn.tick for turn in turns if turn.agent == agent]
        other_turns = [turn for turn in turns if turn.agent == other]
        if not other_turns or (own_ticks and own_ticks[0] <= other_turns[0].tick):
            return 0.0
        last_turn = other_turns[-1]
        return last_turn.charged if last_turn.answers and last_turn.charged is not None else budget.number

    def charge_task(self, task: Task, unit: Unit) -> tuple[float, float]:
        """Return the charge of all sub-requests of a request, and the open part of the charge."""
        groups: dict[str, list[SubRequest]] = {}
        for sub_request in task.open_request.asked:
            groups.setdefault(sub_request.request, []).append(sub_request)
        charges = [self._charge_entry(identity, group, unit) for identity, group in groups.items()]
        return sum(charged for charged, _ in charges), sum(open_part for _, open_part in charges)

    def _charge_entry(self, identity: str, group: Sequence[SubRequest], unit: Unit) -> tuple[float, float]:
        """Return the charge of an entry, which may have several targets, and the open part of the charge."""
        entry = load_entry(self._tick_context.mail, identity)
        allotted = [_allotted_share(sub_request, entry, unit) for sub_request in group]
        if not any(allotted):
            return 0.0, 0.0
        is_closed = entry is not None and len(group) > 1 and self._is_closed(entry, group)
        try:
            charges = [self._charge_sub_request(sub_request, unit, is_closed=is_closed) for sub_request in group]
        except CorruptState:  # `verify` reports the problem in the journal
            charges = [None for _ in group]
        if None in charges and (entry is None or accepts_first_answer(entry)):  # one of them may spend all of it
            return sum(allotted), sum(allotted)
        charged = [part if charge is None else charge for charge, part in zip(charges, allotted, strict=True)]
        return sum(charged), sum(part for charge, part in zip(charges, allotted, strict=True) if charge is None)

    def _is_closed(self, entry: OutboxEntry, group: Sequence[SubRequest]) -> bool:
        """Return True if enough targets had answered before this tick, which ends the work on the request."""
        answers = parse_identities([item.answer for item in group if item.end == "answered"])
        earlier_count = sum(item.tick < self._tick_context.tick for item in answers)
        return earlier_count >= required_answers(entry.payload, len(group))

    def _charge_sub_request(self, sub_request: SubRequest, unit: Unit, *, is_closed: bool) -> float | None:
        """Return the charge of a sub-request, or None while the assignee may spend the whole share."""
        if sub_request.answer:
            return self._charge_answered(sub_request, unit)
        if sub_request.end == "expired":  # a sub-request has no more time than its parent
            return self._subtree_cost(sub_request.request, unit)
        return self._charge_unneeded(sub_request) if is_closed else None

    def _charge_unneeded(self, sub_request: SubRequest) -> float | None:
        """Return the charge of an agent whose answer is no longer needed, or None if others may continue."""
        first_tick = next((item.tick for item in parse_identities([sub_request.request])), self._tick_context.tick)
        key = sub_request.to, sub_request.request
        turns = [item for item in self._list_turns(first_tick) if (item.agent, item.request) == key]
        if not turns:
            return 0.0
        return None if turns[-1].hands_on else turns[-1].charged

    def _charge_answered(self, sub_request: SubRequest, unit: Unit) -> float | None:
        """Return the charge of the turns behind an answer, or None if no journal records the charge.

        The answering agent may have received the request by handoff: each hop is a request with a final turn.
        """
        charged, entry = 0.0, sub_request.answer
        for _ in range(_MAX_HOPS):
            if entry.partition("/")[0] in self._tick_context.mail.persons:
                subtree_cost = self._subtree_cost(sub_request.request, unit)
                return None if subtree_cost is None else charged + subtree_cost
            turn = self._find_writing_turn(entry)
            if turn is None or turn.charged is None or not (turn.answers or turn.hands_on):
                return None
            charged += turn.charged
            if turn.request == sub_request.request:
                # Another recipient that was handed this part too has answered for both.
                return charged if turn.agent == sub_request.to else None
            entry = turn.request
        return None

    def _find_writing_turn(self, entry: str) -> TurnForRequest | None:
        """Return the turn that wrote an entry, in this tick or earlier, or None."""
        name = next(iter(parse_identities([entry])), None)
        if name is None:
            return None
        turns: Iterable[TurnForRequest] = ()
        if name.tick < self._tick_context.tick:
            turns = self._past_turns.load(name.tick)
        elif name.tick == self._tick_context.tick:
            all_reports = self._tick_context.reports
            reports = [all_reports[key] for key in list_turn_keys(name.author, all_reports)]
            turns = [TurnForRequest.from_report(item, name.tick) for item in reports if item.request]
        return next((item for item in turns if entry in item.wrote), None)

    def _subtree_cost(self, identity: str, unit: Unit) -> float | None:
        """Return the cost of a request with all earlier sub-requests, or None if a report is missing."""
        tick = next((item.tick for item in parse_identities([identity])), None)
        if tick is None or (tick < self._tick_context.tick and tick not in journal_ticks(self._tick_context.org)):
            return None
        return RequestCosts(self._list_turns(tick)).subtree_cost(identity).in_unit(unit)

    def _list_turns(self, first_tick: int) -> list[TurnForRequest]:
        """Return the turns for requests from a tick to before this tick, the oldest first."""
        past_ticks = [tick for tick in journal_ticks(self._tick_context.org) if tick < self._tick_context.tick]
        return [turn for tick in past_ticks if tick >= first_tick for turn in self._past_turns.load(tick)]


def _allotted_share(sub_request: SubRequest, entry: OutboxEntry | None, unit: Unit) -> float:
    """Return the budget share of a sub-request. Ledgers of earlier versions have no share: compute the share then."""
    if sub_request.budget is not None:
        return sub_request.budget
    budget = get_budget(entry.payload) if entry else None
    return budget.number / max(len(entry.targets), 1) if entry and budget and budget.unit == unit else 0.0
