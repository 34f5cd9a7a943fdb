"""What models cost in dollars: by a million tokens, for one call, and for one at most.

Prices are those of its line of `config/models.json`, else of the shipped list. That (`prices.json`)
says when it was checked, and against what. It is for the vendors' own servers only: what somebody else's
server charges, only its line can say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from lemming.kernel.base.jsontext import parse
from lemming.kernel.files.fitting import LARGEST_AMOUNT
from lemming.kernel.llm.credits import exact, most_of
from lemming.kernel.llm.tokens import Tokens
from lemming.kernel.org.models import ModelEntry

VENDORS = ("openai", "anthropic")
WRITING = {"auto": 1.25, "5m": 1.25, "1h": 2.0}
"""By how much a token costs more that Anthropic keeps for so long: the price of input is multiplied by it."""
_DATED = re.compile(r"-(?:\d{4}-\d{2}-\d{2}|\d{8})$")


class Price(NamedTuple):
    """Dollars per million tokens. `cached` is None where cached tokens cost what others do.

    `writing`: how many times the price of input a token costs that is put into a cache.
    `checked` is the day on which the shipped list was checked; empty for a price of the settings.
    """

    input: float
    output: float
    cached: float | None = None
    checked: str = ""
    writing: float = 1.0

    def cost(
        self, input_tokens: int, output_tokens: int, cached_tokens: int, written_tokens: int = 0
    ) -> float:
        """Return what a call costs; the input tokens include those cached and those put into a cache.

        >>> Price(2, 10, 0.5).cost(1_000_000, 100_000, 400_000)
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


def price_of(entry: ModelEntry) -> Price | None:
    """Return what a line's model costs; None when neither the line nor the shipped list says it."""
    usual = "auto" if entry.provider == "anthropic" else ""
    writing = WRITING.get(str(entry.options.get("cache", usual)), 1.0)
    if entry.usd_per_million_input_tokens is not None and entry.usd_per_million_output_tokens is not None:
        mine = entry.usd_per_million_input_tokens, entry.usd_per_million_output_tokens
        return Price(*mine, writing=writing)
    if entry.usd_per_million_input_tokens is not None or entry.usd_per_million_output_tokens is not None:
        return None
    found = _looked_up("prices", entry)
    if not found:
        return None
    return Price(found["in"], found["out"], found["cached"], _shipped()["checked"], writing)


def shutdown_of(entry: ModelEntry) -> str:
    """Return the day from which the model no longer answers, or an empty string when none is announced."""
    return str(_looked_up("shutdowns", entry) or "")


def _looked_up(what: str, entry: ModelEntry) -> Any:
    """Return what the list says of a model, which may be named with its day of release."""
    if entry.provider not in VENDORS or entry.options.get("base_url"):  # for others the list is not opened
        return None
    known = _shipped()[what].get(entry.provider, {})
    return known.get(entry.model) or known.get(_DATED.sub("", entry.model))


@cache
def _shipped() -> Mapping[str, Any]:
    plain: dict[str, Any] = parse(files("lemming.capabilities.money").joinpath("prices.json").read_bytes())
    return plain


def dollars_of(entry: ModelEntry, used: Tokens, *, batched: bool) -> float | None:
    """Return what a call costs that used so many tokens; None where no price is known."""
    if (price := price_of(entry)) is None:
        return None
    dollars = price.cost(used.input, used.output, used.cached, used.written)
    return min(dollars * entry.batch_price_factor if batched else dollars, LARGEST_AMOUNT)


class Worst(NamedTuple):
    """The most that one call can cost. `dollars` is None when no price is known."""

    credits: Decimal
    dollars: Decimal | None
    tokens: int


def worst_of(entry: ModelEntry, tokens_in: int) -> Worst:
    """Return the most that a call with so many tokens can cost by its model's line."""
    most, price, dollars = most_of(entry, tokens_in), price_of(entry), None
    if price is not None:
        dearest = max(price.input * price.writing, price.cached or 0.0)
        tokens_out = entry.max_output_tokens
        dollars = (tokens_in * exact(dearest) + tokens_out * exact(price.output)) / 1_000_000
    return Worst(most.credits, dollars, most.tokens)
