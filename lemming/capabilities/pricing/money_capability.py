"""Capability of prices: the cost of a call, from its model entry or the shipped price list."""

from __future__ import annotations

from lemming.ext import Capability


class MoneyCapability(Capability):
    """Prices of models in dollars, and sums of spending. Credits belong to the engine."""

    name = "money"
