"""Costs of turns for requests, summed over the reports in journals.

Used for display and for budgets. The parent of a request comes from the report of the asking turn, never from a payload.
Calls without an answer count, because providers may bill them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple, TypedDict

from lemming.kernel.journal.journal_file import raw_journal
from lemming.kernel.journal.turn_report import TurnReport
from lemming.kernel.journal.write_offs import WriteOff
from lemming.kernel.obligations.request_payloads import Unit
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.plugins.capability_table import SPEAKING_PROVIDERS
from lemming.obligations.request_view import AllRequests, RequestView
from lemming.read_model.tick_facts import fold_journal


class RequestCostJson(TypedDict):
    """The cost of a request as JSON output."""

    turns: int
    calls: int
    credits: float
    cost_usd: float | None


@dataclass(frozen=True)
class RequestCost:
    """The cost of a request. `cost_usd` is None if there were no calls, or if a price is unknown."""

    turns: int = 0
    calls: int = 0
    credits: float = 0.0
    cost_usd: float | None = None
    tokens: int = 0

    def add(self, other: RequestCost) -> RequestCost:
        """Return the sum of both costs."""
        prices = [cost.cost_usd for cost in (self, other) if cost.calls]
        dollars = None if None in prices or not prices else sum(price for price in prices if price is not None)
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

    def as_json(self) -> RequestCostJson:
        """Return the cost as JSON values."""
        return {"turns": self.turns, "calls": self.calls, "credits": self.credits, "cost_usd": self.cost_usd}


NOTHING_SPENT = RequestCost()


class TurnForRequest(NamedTuple):
    """The facts of a turn for a request, from the report of the turn.

    `wrote`: the identities of the entries. `answers` is True for a turn with the answer. `hands_on` is True
    after a handoff. In both cases the agent owes no further turn. `charged`: the amount charged to the budget
    after the turn, without the share of a handoff, or None without such a report.
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
    def from_report(cls, report: TurnReport, tick: int) -> TurnForRequest:
        """Return the facts of a turn in a tick, from the report."""
        name = report.agent
        wrote = tuple(f"{name}/{tick:08}_{entry['id']}" for entry in report.entries)
        hands_on = report.end == "handed_on"
        # A failed turn writes nothing but that its request has failed.
        is_closed = report.status == "done" or (report.status == "failed" and bool(report.entries))
        charged = report.budget["charged"] if report.budget else None
        answers = is_closed and not hands_on
        return cls(name, tick, report.request, _report_cost(report), wrote, answers, hands_on, charged)


def _report_cost(report: TurnReport) -> RequestCost:
    write_off = WriteOff.from_json(report.lost)
    # answers of a capability's own provider are no calls of a model
    calls = 0 if report.model in SPEAKING_PROVIDERS else report.calls
    cost = RequestCost(1, calls, report.credits, report.cost_usd, report.input_tokens + report.output_tokens)
    written_off = RequestCost(0, write_off.calls, write_off.credits, write_off.cost_usd, write_off.tokens)
    return cost.add(written_off) if write_off else cost


class RequestCosts:
    """The cost of each request, by `author/TICK_ID`, as recorded in journals."""

    def __init__(self, turns: Iterable[TurnForRequest]) -> None:
        self._turns = [*turns]
        self._parents = {entry: turn.request for turn in self._turns for entry in turn.wrote}

    def get_cost(self, request: RequestView) -> RequestCost:
        """Return the cost of the turns for one request."""
        return _sum_costs(turn.cost for turn in self._turns if turn.request == request.identity)

    def get_tree_cost(self, request: RequestView, requests: AllRequests) -> RequestCost:
        """Return the cost of a request with all sub-requests."""
        return self.subtree_cost(request.identity, {item.identity for _, item in requests.iter_tree(request)})

    def subtree_cost(self, identity: str, other_identities: Collection[str] = ()) -> RequestCost:
        """Return the cost of a request with all sub-requests, and of other requests as well."""
        roots = {identity, *other_identities}
        return _sum_costs(turn.cost for turn in self._turns if not roots.isdisjoint(self._iter_ancestors(turn.request)))

    def _iter_ancestors(self, request: str) -> Iterator[str]:
        """Yield a request and its ancestors, the nearest first."""
        visited = set[str]()
        while request and request not in visited:
            visited.add(request)
            yield request
            request = self._parents.get(request, "")


def _sum_costs(costs: Iterable[RequestCost]) -> RequestCost:
    return reduce(RequestCost.add, costs, NOTHING_SPENT)


def compute_request_costs(base: OrgPath, requests: Iterable[RequestView]) -> RequestCosts:
    """Return the costs of requests, from the turns since the oldest request."""
    from lemming.read_model.tick_queries import load_reports_for_requests  # budgets do without it

    oldest = min((request.tick for request in requests), default=None)
    reports = () if oldest is None else load_reports_for_requests(base, oldest)
    return RequestCosts(TurnForRequest.from_report(TurnReport.from_json(report), tick) for tick, report in reports)


def turns_for_requests(base: OrgPath, tick: int) -> tuple[TurnForRequest, ...]:
    """Return the turns for requests in a journal: budgets read the journal itself, no cache."""
    reports = [turn.report for turn in fold_journal(tick, raw_journal(base, tick)).turns.values() if turn.report]
    served = [report for report in reports if isinstance(report.get("request"), str) and report["request"]]
    return tuple(TurnForRequest.from_report(TurnReport.from_json(report), tick) for report in served)
