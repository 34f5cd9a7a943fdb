"""What one call used, what it costs in credits, and what it can cost at most. Pure.

What it costs in dollars says a capability: `lemming.kernel.plugins.capabilities.pricing`.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from math import ceil
from typing import NamedTuple

from lemming.kernel.base.errors import OutOfCredits
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.files.fitting import LARGEST_AMOUNT
from lemming.kernel.llm.tokens import Tokens, tokens_used
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.org.resume import AgentCredits
from lemming.kernel.plugins.capabilities import pricing
from lemming.kernel.plugins.shipped import PRICED
from lemming.kernel.providers import Message, Reply, Request


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

    `cost_usd` is None, not 0, when nobody says a price. A batch lowers the price in dollars, not in credits:
    what an agent may do does not depend on how its calls were sent.
    """
    used = tokens_used(messages, reply, provider=entry.provider)
    cost = entry.per_call
    cost += used.input / 1000 * entry.per_1k_input_tokens + used.output / 1000 * entry.per_1k_output_tokens
    dollars: float | None = None
    if entry.usd_per_million_input_tokens is not None or entry.provider in PRICED:
        dollars_of = pricing()
        dollars = dollars_of(entry, used, batched=reply.batched) if dollars_of else None
    credits = round(min(cost, LARGEST_AMOUNT), 6) if cost else 0.0
    return Usage(used.input, used.output, used.cached, used.is_estimated, credits, dollars, used.written)


def check_credits(entry: ModelEntry, allocation: AgentCredits, spent: float) -> None:
    """Raise `OutOfCredits` when the least that one more call can cost is more than is left."""
    limit = allocation.max_credits
    # Rounded as in the ledger: a sum of floats may lie a hair above the limit that it just reaches.
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


class Most(NamedTuple):
    """The most that one call can cost, in credits, and how many tokens it can take, in and out."""

    credits: Decimal
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


def most_of(entry: ModelEntry, tokens_in: int) -> Most:
    """Return the most that a call with so many tokens can cost by its model's line.

    >>> most_of(ModelEntry(provider="x", per_1k_input_tokens=2.0, max_output_tokens=1), 500)
    Most(credits=Decimal('2.000000'), tokens=501)
    """
    credits = exact(entry.per_call)
    credits += tokens_in * exact(entry.per_1k_input_tokens) / 1000
    credits += entry.max_output_tokens * exact(entry.per_1k_output_tokens) / 1000
    return Most(credits.quantize(_MICRO, ROUND_CEILING), tokens_in + entry.max_output_tokens)


def worst_dollars(entry: ModelEntry, tokens_in: int) -> float | None:
    """Return the most that a call with so many tokens can cost in dollars; None where no price is known."""
    if entry.usd_per_million_input_tokens is None and entry.provider not in PRICED:
        return None
    if (dollars_of := pricing()) is None:
        return None
    # whether its input is read from a cache, put into one or neither: whatever costs most
    ways = ((0, 0), (tokens_in, 0), (0, tokens_in))
    used = [Tokens(tokens_in, entry.max_output_tokens, cached, False, written) for cached, written in ways]
    costs = [dollars_of(entry, it, batched=False) for it in used]
    return None if None in costs else ceil(max(costs) * 1e12) / 1e12


def exact(amount: float) -> Decimal:
    """Return an amount as it is written."""
    return Decimal(repr(amount))
