"""Prices of models and the maximum cost of calls, in dollars. Without the capability of prices none is known."""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple

from lemming.kernel.llm.call_cost import cost_bound
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.plugins.capability_loader import find_fact


class ModelPrice(NamedTuple):
    """Price in dollars per million tokens. `cached` is None if cached tokens have no discount.

    `cache_write_factor`: price factor of input tokens written to a cache. `checked`: date of the shipped
    list, or empty for a price from the settings.
    """

    input: float
    output: float
    cached: float | None = None
    checked: str = ""
    writing: float = 1.0

    def cost(self, input_tokens: int, output_tokens: int, cached_tokens: int, written_tokens: int = 0) -> float:
        """Return the cost of a call. Input tokens include tokens read from and written to a cache.

        >>> ModelPrice(2, 10, 0.5).cost(1_000_000, 100_000, 400_000)
        2.4
        """
        dollars = input_tokens * self.input + output_tokens * self.output
        if self.cached is not None:
            dollars -= min(cached_tokens, input_tokens) * (self.input - self.cached)
        dollars += min(written_tokens, input_tokens) * self.input * (self.writing - 1)
        return dollars / 1e6

    def __str__(self) -> str:
        source = f"the shipped list, checked {self.checked}" if self.checked else "config/models.json"
        return f"${self.input:g} in, ${self.output:g} out a million tokens ({source})"


class CallCostBound(NamedTuple):
    """Maximum cost of a call. `dollars` is None without a known price."""

    credits: Decimal
    dollars: Decimal | None
    tokens: int


def find_price(entry: ModelEntry) -> ModelPrice | None:
    """Return the price of a model in dollars, or None for an unknown price."""
    get_price = find_fact("money.price")
    price: ModelPrice | None = get_price(entry) if get_price else None
    return price


def find_shutdown_date(entry: ModelEntry) -> str:
    """Return the announced shutdown date of a model, or the empty string."""
    get_shutdown_date = find_fact("money.shutdown_date")
    return str(get_shutdown_date(entry)) if get_shutdown_date else ""


def max_call_cost(entry: ModelEntry, tokens_in: int) -> CallCostBound:
    """Return the maximum cost of a call with this many input tokens; `dollars` is None for an unknown price."""
    get_bound = find_fact("money.max_call_cost")
    if get_bound is None:
        bound = cost_bound(entry, tokens_in)
        return CallCostBound(bound.credits, None, bound.tokens)
    call_bound: CallCostBound = get_bound(entry, tokens_in)
    return call_bound
