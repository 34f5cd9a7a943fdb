"""The price of a model and the maximum cost of a call, in dollars."""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple


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
