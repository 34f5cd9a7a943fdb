"""What counts as spent of a request's budget for what was asked for it, and for what others do of it.

    charged = what its own turns cost + what was asked and is over, as it cost + what is open, in full

So no budget is exceeded, whoever works at once: each part of it is one agent's alone until that agent's last
turn for it, whose report says what it comes to. It goes by reports in journals and by ledgers, never by what
payloads say, which anybody may leave out. Where a journal that would tell is gone, all counts as spent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lemming.capabilities.requests.budgets import BudgetAmount, Unit, budget_in
from lemming.capabilities.requests.costs import RequestCosts, TurnForRequest, turns_for_requests
from lemming.capabilities.requests.payloads import enough_in, is_for_any
from lemming.capabilities.requests.returned_answers import read_entry
from lemming.kernel.base.errors import CorruptState
from lemming.kernel.base.turn_numbers import keys_of
from lemming.kernel.journal.begun import Asked
from lemming.kernel.journal.file import journal_ticks
from lemming.kernel.mail.task import Task
from lemming.kernel.messages import OutboxEntry, names_of
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.turn.opening import Surroundings

_KEPT_TICKS = 2_000
_MOST_HOPS = 100


class _TurnsBefore:
    """The turns for requests of ticks that are over, by tick: `org.own(_TurnsBefore)`."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._ticks: dict[int, tuple[TurnForRequest, ...]] = {}

    def of(self, tick: int) -> tuple[TurnForRequest, ...]:
        """Return the reports of a tick that is over; none if its journal is gone."""
        if tick not in self._ticks:
            if len(self._ticks) >= _KEPT_TICKS:
                del self._ticks[next(iter(self._ticks))]
            self._ticks[tick] = (*turns_for_requests(self._org, tick),)
        return self._ticks[tick]


class Charges:
    """What counts as spent, for a turn of an agent in a tick."""

    def __init__(self, now: Surroundings) -> None:
        self._now, self._before = now, now.org.own(_TurnsBefore)

    def find_budget(self, request: OutboxEntry, agent: str) -> BudgetAmount | None:
        """Return the part of a request's budget that an agent may spend; None without a budget.

        Several who are asked share it evenly. Where the first answer is enough, whoever begins first may
        spend all of it, and whoever begins later what the others have left once they are done with it.
        """
        budget = budget_in(request.payload)
        if budget is None or len(request.targets) < 2:
            return budget
        if not is_for_any(request):
            return budget.split_budget(len(request.targets))
        try:
            others = sum(self._claimed(request, agent, it, budget) for it in request.targets - {agent})
        except CorruptState:  # `verify` says what is wrong with the journal
            others = budget.number
        return budget._replace(number=max(round(budget.number - others, 6), 0.0))

    def _claimed(self, request: OutboxEntry, agent: str, other: str, budget: BudgetAmount) -> float:
        """Return the charge of another agent that was asked, if its work began before this agent's."""
        turns = [it for it in self._since(request.tick) if it.request == request.identity]
        own = [it.tick for it in turns if it.agent == agent]
        others = [it for it in turns if it.agent == other]
        if not others or (own and own[0] <= others[0].tick):
            return 0.0
        last = others[-1]
        return last.charged if last.answers and last.charged is not None else budget.number

    def of_task(self, task: Task, unit: Unit) -> tuple[float, float]:
        """Return the charge of all requests below a request, and the part of it that is open."""
        groups: dict[str, list[Asked]] = {}
        for asked in task.begun.asked:
            groups.setdefault(asked.request, []).append(asked)
        charges = [self._of_entry(identity, group, unit) for identity, group in groups.items()]
        return sum(charged for charged, _ in charges), sum(open_ for _, open_ in charges)

    def _of_entry(self, identity: str, group: Sequence[Asked], unit: Unit) -> tuple[float, float]:
        """Return the charge of one entry, which may ask several, and the part of it that is open."""
        entry = read_entry(self._now.mail, identity)
        allotted = [_allotted(asked, entry, unit) for asked in group]
        if not any(allotted):
            return 0.0, 0.0
        is_over = entry is not None and len(group) > 1 and self._is_over(entry, group)
        try:
            known = [self._charged(asked, unit, is_over=is_over) for asked in group]
        except CorruptState:  # `verify` says what is wrong with the journal
            known = [None for _ in group]
        if None in known and (entry is None or is_for_any(entry)):  # one of them may spend all of it
            return sum(allotted), sum(allotted)
        charged = [part if it is None else it for it, part in zip(known, allotted, strict=True)]
        return sum(charged), sum(part for it, part in zip(known, allotted, strict=True) if it is None)

    def _is_over(self, entry: OutboxEntry, group: Sequence[Asked]) -> bool:
        """Return True if enough of those asked had answered before this tick: then nobody goes on."""
        answers = names_of([it.answer for it in group if it.end == "answered"])
        return sum(it.tick < self._now.tick for it in answers) >= enough_in(entry.payload, len(group))

    def _charged(self, asked: Asked, unit: Unit, *, is_over: bool) -> float | None:
        """Return the charge of one question; None while its holder may spend the whole share."""
        if asked.answer:
            return self._by_answer(asked, unit)
        if asked.end == "expired":  # what was asked for it in turn has no longer time than it has
            return self._cost_below(asked.request, unit)
        return self._charge_unneeded(asked) if is_over else None

    def _charge_unneeded(self, asked: Asked) -> float | None:
        """Return the charge of an agent that need not answer any more; None if others may go on."""
        first = next((it.tick for it in names_of([asked.request])), self._now.tick)
        turns = [it for it in self._since(first) if (it.agent, it.request) == (asked.to, asked.request)]
        if not turns:
            return 0.0
        return None if turns[-1].hands_on else turns[-1].charged

    def _by_answer(self, asked: Asked, unit: Unit) -> float | None:
        """Return the sum that the turns before an answer were charged; None if no journal tells.

        Who answers may have been handed it on: each hop is a request of its own, with a turn that ended it.
        """
        charged, entry = 0.0, asked.answer
        for _ in range(_MOST_HOPS):
            if entry.partition("/")[0] in self._now.mail.persons:
                below = self._cost_below(asked.request, unit)
                return None if below is None else charged + below
            turn = self._turn_that_wrote(entry)
            if turn is None or turn.charged is None or not (turn.answers or turn.hands_on):
                return None
            charged += turn.charged
            if turn.request == asked.request:
                # Another one who was asked, and was handed this part too, answered for both.
                return charged if turn.agent == asked.to else None
            entry = turn.request
        return None

    def _turn_that_wrote(self, entry: str) -> TurnForRequest | None:
        """Return the turn that wrote an entry, which may be one of this tick, if it was for a request."""
        name = next(iter(names_of([entry])), None)
        if name is None:
            return None
        turns: Iterable[TurnForRequest] = self._before.of(name.tick) if name.tick < self._now.tick else ()
        if name.tick == self._now.tick:
            reports = [self._now.reports[key] for key in keys_of(name.author, self._now.reports)]
            turns = [TurnForRequest.of(it, name.tick) for it in reports if it.request]
        return next((it for it in turns if entry in it.wrote), None)

    def _cost_below(self, identity: str, unit: Unit) -> float | None:
        """Return the spending below a request before this tick, by reports; None if one is gone."""
        tick = next((it.tick for it in names_of([identity])), None)
        if tick is None or (tick < self._now.tick and tick not in journal_ticks(self._now.org)):
            return None
        return RequestCosts(self._since(tick)).below(identity).in_unit(unit)

    def _since(self, first: int) -> list[TurnForRequest]:
        """Return the turns for requests from a tick on that were taken before this tick, oldest first."""
        ticks = [it for it in journal_ticks(self._now.org) if first <= it < self._now.tick]
        return [turn for tick in ticks for turn in self._before.of(tick)]


def _allotted(asked: Asked, entry: OutboxEntry | None, unit: Unit) -> float:
    """Return the budget share allotted to a question; ledgers of earlier versions have none."""
    if asked.budget is not None:
        return asked.budget
    given = budget_in(entry.payload) if entry else None
    return given.number / max(len(entry.targets), 1) if entry and given and given.unit == unit else 0.0
