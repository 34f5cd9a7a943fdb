"""Prices of models for screens and budgets; without the capability of prices no price is known."""

from __future__ import annotations

from lemming.kernel.llm.call_cost import cost_bound
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.plugins.capability_loader import find_fact
from lemming.libraries.model_price import CallCostBound, ModelPrice


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
