"""What turns for a request have cost, added up: what is not known is not nothing."""

from __future__ import annotations

import pytest

from lemming.obligations.request_costs import NOTHING_SPENT, RequestCost


def cost(dollars: float | None, calls: int = 1, **more: float) -> RequestCost:
    return RequestCost(turns=1, calls=calls, cost_usd=dollars, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        (cost(0.5), cost(0.25), 0.75),
        (cost(0.5), cost(None), None),
        (cost(None), cost(0.5), None),
        (cost(0.5), cost(0.0), 0.5),
        (cost(0.5), cost(None, calls=0), 0.5),
        (cost(None, calls=0), cost(0.5), 0.5),
        (cost(None, calls=0), cost(None, calls=0), None),
        (NOTHING_SPENT, cost(0.5), 0.5),
    ],
)
def test_dollars_are_added_up_unless_a_price_is_not_known(
    one: RequestCost, other: RequestCost, together: float | None
) -> None:
    assert one.add(other).cost_usd == together


def test_everything_else_is_added_up() -> None:
    found = cost(None, calls=2, credits=0.1, tokens=30).add(cost(None, calls=3, credits=0.2, tokens=12))
    assert found == RequestCost(turns=2, calls=5, credits=0.3, cost_usd=None, tokens=42)


@pytest.mark.parametrize(("unit", "amount"), [("credits", 0.5), ("tokens", 42.0)])
def test_a_budget_is_held_against_its_own_unit(unit: str, amount: float) -> None:
    assert cost(None, credits=0.5, tokens=42).in_unit(unit) == amount  # type: ignore[arg-type]
