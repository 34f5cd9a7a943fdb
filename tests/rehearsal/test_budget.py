"""What is paid under `--budget`: a call whose answer never came may be billed, and counts as if it were."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pytest

from lemming.capabilities.pricing.prices import max_call_cost
from lemming.evals.rehearsal.spending_budget import SpendingBudget
from lemming.kernel.base.errors import OverBudget, ProviderError, Unavailable
from lemming.kernel.llm.call_cost import max_input_tokens
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.providers import Reply, Request

ENTRY = ModelEntry(
    provider="openai", usd_per_million_input_tokens=1.0, usd_per_million_output_tokens=10.0, max_output_tokens=100
)
QUESTION = Request(model_name="m", messages=[{"role": "user", "content": "what?"}], max_output_tokens=100)
WORST = max_call_cost(ENTRY, max_input_tokens(QUESTION)).dollars or Decimal(0)


class Server:
    """Breaks off so many attempts of a call, and answers then; it bills for each."""

    def __init__(self, breaks: int, *, is_billed: bool = True) -> None:
        self.breaks, self.is_billed, self.asked = breaks, is_billed, 0

    def __call__(self, _: Request, before_again: Callable[[ProviderError], None]) -> Reply:
        while True:
            self.asked += 1
            if self.asked > self.breaks:
                return Reply("here", input_tokens=10, output_tokens=1)
            error = Unavailable("cut off")
            error.may_be_paid = self.is_billed
            if self.asked == 3:
                raise error
            before_again(error)


def test_an_attempt_that_broke_off_has_cost_the_most_that_it_can() -> None:
    spending = SpendingBudget()
    spending.run_within_budget(ENTRY, QUESTION, Server(breaks=2))
    assert spending.dollars == 2 * WORST + Decimal("0.00002")


def test_a_call_that_never_had_an_answer_has_cost_all_its_attempts() -> None:
    spending = SpendingBudget()
    with pytest.raises(Unavailable):
        spending.run_within_budget(ENTRY, QUESTION, Server(breaks=3))
    assert spending.dollars == 3 * WORST


def test_an_attempt_that_nobody_bills_for_costs_nothing() -> None:
    spending = SpendingBudget()
    with pytest.raises(Unavailable):
        spending.run_within_budget(ENTRY, QUESTION, Server(breaks=3, is_billed=False))
    assert spending.dollars == 0


@pytest.mark.parametrize("times", [1, 2])
def test_no_attempt_is_made_that_could_exceed_the_limit(times: int) -> None:
    spending, server = SpendingBudget(float(WORST * times)), Server(breaks=3)
    with pytest.raises(OverBudget, match="are spent"):
        spending.run_within_budget(ENTRY, QUESTION, server)
    assert server.asked == times
    assert spending.dollars == WORST * times
