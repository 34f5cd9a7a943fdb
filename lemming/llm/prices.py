"""What a model costs, what one call used, and what it can cost at most, in dollars and credits.

Prices are those of its line of `config/models.json`, else of the shipped list. That (`prices.json`)
says when it was checked, and against what. It is for the vendors' own servers only: what somebody else's
server charges, only its line can say.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from lemming.base.errors import OutOfCredits
from lemming.base.jsontext import parse, to_line
from lemming.files.fitting import LARGEST_AMOUNT
from lemming.llm.tokens import tokens_used
from lemming.org.models import ModelEntry
from lemming.org.resume import AgentCredits
from lemming.providers import Message, Reply, Request

VENDORS = ("openai", "anthropic")
WRITING = {"5m": 1.25, "1h": 2.0}
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
    writing = WRITING.get(str(entry.options["cache"]), 1.0) if "cache" in entry.options else 1.0
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
def _shipped() -> dict[str, Any]:
    plain: dict[str, Any] = parse(files("lemming.llm").joinpath("prices.json").read_bytes())
    return plain


# --- what one call used --------------------------------------------------------------------------


@dataclass(slots=True)  # made for every call, and a named tuple takes twice as long
class Usage:
    """What one call used. Tokens are estimates (a quarter of the bytes) when the backend did not count."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int
    is_estimated: bool
    credits: float
    cost_usd: float | None
    written_tokens: int = 0


def usage_of(entry: ModelEntry, messages: list[Message], reply: Reply) -> Usage:
    """Return what a reply used and what it costs by its model's entry.

    `cost_usd` is None, not 0, when neither the entry nor the shipped list gives a price. A batch lowers the
    price in dollars, not in credits: what an agent may do does not depend on how its calls were sent.
    """
    used = tokens_used(messages, reply, provider=entry.provider)
    cost = entry.per_call
    cost += used.input / 1000 * entry.per_1k_input_tokens + used.output / 1000 * entry.per_1k_output_tokens
    dollars = None
    if price := price_of(entry):
        dollars = price.cost(used.input, used.output, used.cached, used.written)
        if reply.batched:
            dollars *= entry.batch_price_factor
        dollars = min(dollars, LARGEST_AMOUNT)
    credits = round(min(cost, LARGEST_AMOUNT), 6) if cost else 0.0
    return Usage(used.input, used.output, used.cached, used.is_estimated, credits, dollars, used.written)


def check_credits(entry: ModelEntry, allocation: AgentCredits, spent: float) -> None:
    """Raise `OutOfCredits` when the least that one more call can cost is more than is left."""
    limit = allocation.max_credits
    if limit is not None and (spent >= limit or round(spent + entry.per_call, 6) > limit):
        raise OutOfCredits(
            f"out of credits: {spent:g} of {limit:g} spent, a call costs {entry.per_call:g}",
            hint="grant more with `lemming credits grant`",
        )


def has_reached_soft_cap(allocation: AgentCredits, spent: float) -> bool:
    """Return whether the agent should be warned about its spending."""
    return allocation.soft_cap is not None and spent >= allocation.soft_cap


# --- what one call can cost at most --------------------------------------------------------------
# A token is a byte at least, so that a prompt has no more tokens than bytes; what a server adds around
# messages, tools and schemas is allowed for.


AROUND_A_CALL = 1024
AROUND_A_MESSAGE = 64
OF_AN_IMAGE = 20_000
_MICRO = Decimal("0.000001")  # ledgers hold credits so


class Worst(NamedTuple):
    """The most that one call can cost. `dollars` is None when no price is known."""

    credits: Decimal
    dollars: Decimal | None
    tokens: int


def most_tokens_in(request: Request) -> int:
    """Return how many tokens a request can have at most."""
    tokens = AROUND_A_CALL + OF_AN_IMAGE * len(request.images)
    for message in request.messages:
        said = message["content"] if len(message) == 2 else to_line(message)
        tokens += AROUND_A_MESSAGE + size_of(said)
    return tokens + (size_of(to_line(request.schema)) if request.schema else 0)


def size_of(text: str) -> int:
    """Return how many bytes a text has."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def worst_of(entry: ModelEntry, tokens_in: int) -> Worst:
    """Return the most that a call with so many tokens can cost by its model's line.

    >>> worst_of(ModelEntry(provider="x", per_1k_input_tokens=2.0, max_output_tokens=1), 500)
    Worst(credits=Decimal('2.000000'), dollars=None, tokens=501)
    """
    tokens_out, price = entry.max_output_tokens, price_of(entry)
    credits = exact(entry.per_call)
    credits += tokens_in * exact(entry.per_1k_input_tokens) / 1000
    credits += tokens_out * exact(entry.per_1k_output_tokens) / 1000
    dollars = None
    if price is not None:
        dearest = max(price.input * price.writing, price.cached or 0.0)
        dollars = (tokens_in * exact(dearest) + tokens_out * exact(price.output)) / 1_000_000
    return Worst(credits.quantize(_MICRO, ROUND_CEILING), dollars, tokens_in + tokens_out)


def exact(amount: float) -> Decimal:
    """Return an amount as it is written."""
    return Decimal(repr(amount))
