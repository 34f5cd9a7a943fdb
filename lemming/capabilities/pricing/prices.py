"""Prices of models in dollars: per million tokens, for a call, and the maximum for a call.

Prices come from the model's entry in `config/models.json`, else from the shipped list (`prices.json`), with its date
and sources. The list covers only the vendors' own servers: prices of another server must be in its entry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from lemming.ext import Capability, ModelEntry
from lemming.kernel.base.jsontext import parse
from lemming.kernel.files.fast_decoder import MAX_AMOUNT
from lemming.kernel.llm.call_cost import Tokens, cost_bound, to_decimal
from lemming.operations.model_prices import CallCostBound, ModelPrice

VENDORS = {
    "openai": "openai", "anthropic": "anthropic", "codex": "openai", "claude-code": "anthropic", "opencode": "openai",
    "pi": "anthropic",
}  # fmt: skip
"""Vendors whose prices the list has, by provider: a harness asks its vendor's server."""
CACHE_WRITE_FACTORS = {"auto": 1.25, "5m": 1.25, "1h": 2.0}
"""By how much a token costs more that Anthropic keeps for so long: the price of input is multiplied by it."""
_DATE_SUFFIX = re.compile(r"-(?:\d{4}-\d{2}-\d{2}|\d{8})$")


def get_price(entry: ModelEntry) -> ModelPrice | None:
    """Return the price of a model, or None if neither its entry nor the shipped list has one."""
    default_cache = "auto" if entry.provider == "anthropic" else ""
    cache_write_factor = CACHE_WRITE_FACTORS.get(str(entry.options.get("cache", default_cache)), 1.0)
    if entry.usd_per_million_input_tokens is not None and entry.usd_per_million_output_tokens is not None:
        own_prices = entry.usd_per_million_input_tokens, entry.usd_per_million_output_tokens
        return ModelPrice(*own_prices, writing=cache_write_factor)
    if entry.usd_per_million_input_tokens is not None or entry.usd_per_million_output_tokens is not None:
        return None
    listing = _lookup_model("prices", entry)
    if not listing:
        return None
    return ModelPrice(
        listing["in"], listing["out"], listing["cached"], _load_price_list()["checked"], cache_write_factor
    )


def get_shutdown_date(entry: ModelEntry) -> str:
    """Return the announced shutdown date of a model, or the empty string."""
    return str(_lookup_model("shutdowns", entry) or "")


def _lookup_model(section: str, entry: ModelEntry) -> Any:
    """Return the list's value for a model. The model may be named with a release date."""
    if entry.provider not in VENDORS or entry.options.get("base_url"):  # for others the list is not opened
        return None
    models = _load_price_list()[section].get(VENDORS[entry.provider], {})
    return models.get(entry.model) or models.get(_DATE_SUFFIX.sub("", entry.model))


@cache
def _load_price_list() -> Mapping[str, Any]:
    plain: dict[str, Any] = parse(files("lemming.capabilities.pricing").joinpath("prices.json").read_bytes())
    return plain


def compute_cost_usd(entry: ModelEntry, used: Tokens, *, batched: bool) -> float | None:
    """Return the cost of a call by its tokens, or None without a known price."""
    if (price := get_price(entry)) is None:
        return None
    dollars = price.cost(used.input, used.output, used.cached, used.written)
    return min(dollars * entry.batch_price_factor if batched else dollars, MAX_AMOUNT)


def max_call_cost(entry: ModelEntry, tokens_in: int) -> CallCostBound:
    """Return the maximum cost of a call with this many input tokens."""
    bound, price, dollars = cost_bound(entry, tokens_in), get_price(entry), None
    if price is not None:
        max_input_price = max(price.input * price.writing, price.cached or 0.0)
        tokens_out = entry.max_output_tokens
        dollars = (tokens_in * to_decimal(max_input_price) + tokens_out * to_decimal(price.output)) / 1_000_000
    return CallCostBound(bound.credits, dollars, bound.tokens)


class MoneyCapability(Capability):
    """Prices of models in dollars, and sums of spending. Credits belong to the engine."""

    name = "money"
