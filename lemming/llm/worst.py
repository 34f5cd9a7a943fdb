"""What a model call can cost at most, before it is made. Pure.

A token is a byte at least, so that a prompt has no more tokens than bytes; what a server adds around
messages, tools and schemas is allowed for.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal
from typing import NamedTuple

from lemming.base.jsontext import to_line
from lemming.llm.prices import price_of
from lemming.org.models import ModelEntry
from lemming.providers import Request

AROUND_A_CALL = 1024
AROUND_A_MESSAGE = 64
OF_AN_IMAGE = 20_000
_MICRO = Decimal("0.000001")  # ledgers hold credits so


class Worst(NamedTuple):
    """The most that one call can cost. `dollars` is None when no price is known."""

    credits: Decimal
    dollars: Decimal | None


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
    Worst(credits=Decimal('2.000000'), dollars=None)
    """
    tokens_out, price = entry.max_output_tokens, price_of(entry)
    credits = exact(entry.per_call)
    credits += tokens_in * exact(entry.per_1k_input_tokens) / 1000
    credits += tokens_out * exact(entry.per_1k_output_tokens) / 1000
    dollars = None
    if price is not None:
        dearest = max(price.input * price.writing, price.cached or 0.0)
        dollars = (tokens_in * exact(dearest) + tokens_out * exact(price.output)) / 1_000_000
    return Worst(credits.quantize(_MICRO, ROUND_CEILING), dollars)


def exact(amount: float) -> Decimal:
    """Return an amount as it is written."""
    return Decimal(repr(amount))
