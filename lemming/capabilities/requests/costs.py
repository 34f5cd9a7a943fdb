"""What turns for requests have cost: the one sum over the reports that stand in journals.

Screens show it, and budgets go by it. Which request was asked for which says the report of the turn that
asked it, and no payload: a turn for a request writes what is asked for it, and what hands it on. Calls whose
answers never came count, for they may be billed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

from lemming.capabilities.requests.budgets import Unit
from lemming.capabilities.requests.view import AllRequests, RequestView
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.journal.file import journal_ticks, raw_journal
from lemming.kernel.journal.lost_calls import Lost
from lemming.kernel.journal.report import TurnReport
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.plugins.capabilities import why_missing
from lemming.kernel.plugins.shipped import OF_PROVIDER

FEW_TICKS = 200
"""So many journals are looked through in less time than what is kept of others."""

_NAMES_A_REQUEST, _ENDS_A_TURN = b'"request":"', (b'{"type":"turn_committed"', b'{"type":"turn_skipped"')


class RequestCostShown(TypedDict):
    """What was spent on a request, as screens and programs have it."""

    turns: int
    calls: int
    credits: float
    cost_usd: float | None


@dataclass(frozen=True)
class RequestCost:
    """What was spent on a request. `cost_usd` is None when nothing was, or a price is not known."""

    turns: int = 0
    calls: int = 0
    credits: float = 0.0
    cost_usd: float | None = None
    tokens: int = 0

    def plus(self, other: RequestCost) -> RequestCost:
        """Return what both cost together."""
        known = [it.cost_usd for it in (self, other) if it.calls]
        dollars = None if None in known or not known else sum(cost for cost in known if cost is not None)
        return RequestCost(
            self.turns + other.turns,
            self.calls + other.calls,
            round(self.credits + other.credits, 6),
            dollars,
            self.tokens + other.tokens,
        )

    def in_unit(self, unit: Unit) -> float:
        """Return the cost in credits, or in tokens."""
        return float(self.tokens) if unit == "tokens" else self.credits

    def as_json(self) -> RequestCostShown:
        """Return it as JSON values."""
        return {
            "turns": self.turns,
            "calls": self.calls,
            "credits": self.credits,
            "cost_usd": self.cost_usd,
        }


NOTHING_SPENT = RequestCost()


class TurnForRequest(NamedTuple):
    """What a report says of a turn that was for a request: what it cost, and what it wrote.

    `wrote`: its entries, by identity. `answers`: it gave the answer, `hands_on`: it handed the request on; so
    the agent owes it no further turn. `charged`: what counts as spent of its budget after the turn, without
    what whoever it was handed on to may spend; None where no report says so.
    """

    agent: str
    tick: int
    request: str
    cost: RequestCost
    wrote: tuple[str, ...]
    answers: bool
    hands_on: bool
    charged: float | None

    @classmethod
    def of(cls, report: TurnReport, tick: int) -> TurnForRequest:
        """Return the record of a turn in a tick, out of its report."""
        name = report.agent
        wrote = tuple(f"{name}/{tick:08}_{it['id']}" for it in report.entries)
        hands_on = report.end == "handed_on"
        # A failed turn writes nothing but that its request has failed.
        is_over = report.status == "done" or (report.status == "failed" and bool(report.entries))
        charged = report.budget["charged"] if report.budget else None
        answers = is_over and not hands_on
        return cls(name, tick, report.request, _cost_in(report), wrote, answers, hands_on, charged)


def _cost_in(report: TurnReport) -> RequestCost:
    lost = Lost.of(report.lost)
    # answers of a capability's own provider are no calls of a model
    calls = 0 if report.model in OF_PROVIDER else report.calls
    cost = RequestCost(1, calls, report.credits, report.cost_usd, report.input_tokens + report.output_tokens)
    in_vain = RequestCost(0, lost.calls, lost.credits, lost.cost_usd, lost.tokens)
    return cost.plus(in_vain) if lost else cost


class RequestCosts:
    """What each request has cost, by `author/TICK_ID`, as far as journals tell."""

    def __init__(self, turns: Iterable[TurnForRequest]) -> None:
        self._turns = [*turns]
        self._parents = {entry: turn.request for turn in self._turns for entry in turn.wrote}

    def of(self, request: RequestView) -> RequestCost:
        """Return what the turns for one request cost."""
        return _sum(it.cost for it in self._turns if it.request == request.identity)

    def of_tree(self, request: RequestView, requests: AllRequests) -> RequestCost:
        """Return what a request cost with all that was asked for it."""
        return self.below(request.identity, {it.identity for _, it in requests.tree(request)})

    def below(self, identity: str, others: Collection[str] = ()) -> RequestCost:
        """Return the cost of a request with all that was asked for it, and for these others."""
        wanted = {identity, *others}
        return _sum(it.cost for it in self._turns if not wanted.isdisjoint(self._above(it.request)))

    def _above(self, request: str) -> Iterator[str]:
        """Yield a request and those that it was asked for, the nearest first."""
        seen = set[str]()
        while request and request not in seen:
            seen.add(request)
            yield request
            request = self._parents.get(request, "")


def _sum(costs: Iterable[RequestCost]) -> RequestCost:
    spending = NOTHING_SPENT
    for cost in costs:
        spending = spending.plus(cost)
    return spending


def costs_of(
    base: OrgPath, requests: Iterable[RequestView], progress: Callable[[str], object] = str
) -> RequestCosts:
    """Return what these requests have cost; journals from the oldest of them on are looked through.

    `progress` is told which.
    """
    oldest = min((request.tick for request in requests), default=None)
    turns: list[TurnForRequest] = []
    if oldest is not None:
        ticks = [tick for tick in journal_ticks(base) if tick >= oldest]
        idle = _idle(base) if len(ticks) > FEW_TICKS else ()
        for tick in ticks:
            if tick not in idle:
                progress(f"the journal of tick {tick}")
                turns += turns_for_requests(base, tick)
    return RequestCosts(turns)


def _idle(base: OrgPath) -> Collection[int]:
    """Return ticks of which it is kept that no turn was for a request."""
    if why_missing("money"):
        return ()
    from lemming.capabilities.money.spent import ticks_of_no_request

    return ticks_of_no_request(base)


def turns_for_requests(base: OrgPath, tick: int) -> Iterator[TurnForRequest]:
    """Yield the turns for requests that one journal records.

    Its lines are not checked here: `lemming verify` does that.
    """
    raw = raw_journal(base, tick)
    for line in raw.split(b"\n") if _NAMES_A_REQUEST in raw else ():
        if line.startswith(_ENDS_A_TURN) and _NAMES_A_REQUEST in line:
            plain = _report_in(line)
            if isinstance(plain.get("request"), str) and plain["request"]:
                yield TurnForRequest.of(TurnReport.from_json(plain), tick)


def _report_in(line: bytes) -> dict[str, Any]:
    """Return the report that a line holds; empty for one that is damaged."""
    try:
        plain = parse(line, limit_bytes=len(line))
    except JsonProblem:
        return {}
    return plain if isinstance(plain, dict) else {}
