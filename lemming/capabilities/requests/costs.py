"""What turns for requests have cost: sums over the reports that stand in journals."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, TypedDict

from lemming.capabilities.requests.view import AllRequests, RequestView
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.journal.file import journal_ticks, raw_journal
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.plugins.capabilities import why_missing
from lemming.kernel.plugins.shipped import OF_PROVIDER

FEW_TICKS = 200
"""So many journals are looked through in less time than what is kept of others."""

_NAMES_A_REQUEST, _ENDS_A_TURN = b'"request":"', b'{"type":"turn_'


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

    def plus(self, other: RequestCost) -> RequestCost:
        """Return what both cost together."""
        known = [it.cost_usd for it in (self, other) if it.calls]
        dollars = None if None in known or not known else sum(cost for cost in known if cost is not None)
        return RequestCost(
            self.turns + other.turns,
            self.calls + other.calls,
            round(self.credits + other.credits, 6),
            dollars,
        )

    def as_json(self) -> RequestCostShown:
        """Return it as JSON values."""
        return {
            "turns": self.turns,
            "calls": self.calls,
            "credits": self.credits,
            "cost_usd": self.cost_usd,
        }


NOTHING_SPENT = RequestCost()


class RequestCosts:
    """What each request has cost, by `author/TICK_ID`, as far as journals tell."""

    def __init__(self, by_identity: dict[str, RequestCost]) -> None:
        self._by_identity = by_identity

    def of(self, request: RequestView) -> RequestCost:
        """Return what the turns for one request cost."""
        return self._by_identity.get(request.identity, NOTHING_SPENT)

    def of_tree(self, request: RequestView, requests: AllRequests) -> RequestCost:
        """Return what a request cost with all that was asked for it."""
        cost = NOTHING_SPENT
        for _, each in requests.tree(request):
            cost = cost.plus(self.of(each))
        return cost


def costs_of(
    base: OrgPath, requests: Iterable[RequestView], progress: Callable[[str], object] = str
) -> RequestCosts:
    """Return what these requests have cost; journals from the oldest of them on are looked through.

    `progress` is told which.
    """
    oldest = min((request.tick for request in requests), default=None)
    found: dict[str, RequestCost] = {}
    if oldest is not None:
        ticks = [tick for tick in journal_ticks(base) if tick >= oldest]
        idle = _idle(base) if len(ticks) > FEW_TICKS else ()
        for tick in ticks:
            if tick not in idle:
                progress(f"the journal of tick {tick}")
                _add(found, raw_journal(base, tick))
    return RequestCosts(found)


def _idle(base: OrgPath) -> Collection[int]:
    """Return ticks of which it is kept that no turn was for a request."""
    if why_missing("money"):
        return ()
    from lemming.capabilities.money.spent import ticks_of_no_request

    return ticks_of_no_request(base)


def _add(found: dict[str, RequestCost], raw: bytes) -> None:
    """Add what one journal tells. Its lines are not checked here: `lemming verify` does that."""
    if _NAMES_A_REQUEST not in raw:
        return
    for line in raw.split(b"\n"):
        if not (line.startswith(_ENDS_A_TURN) and _NAMES_A_REQUEST in line):
            continue
        plain = _report_in(line)
        request = plain.get("request")
        if isinstance(request, str) and request:
            found[request] = found.get(request, NOTHING_SPENT).plus(_cost_in(plain))


def _report_in(line: bytes) -> dict[str, Any]:
    """Return the report that a line holds; empty for other kinds of lines, and for one that is damaged."""
    if not line.startswith((b'{"type":"turn_committed"', b'{"type":"turn_skipped"')):
        return {}
    try:
        plain = parse(line, limit_bytes=len(line))
    except JsonProblem:
        return {}
    return plain if isinstance(plain, dict) else {}


def _cost_in(report: dict[str, Any]) -> RequestCost:
    # answers of a capability's own provider are no calls of a model
    calls = 0 if report.get("model") in OF_PROVIDER else int(report.get("calls", 0))
    return RequestCost(1, calls, report.get("credits", 0.0), report.get("cost_usd"))
