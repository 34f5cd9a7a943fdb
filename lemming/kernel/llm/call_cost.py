"""Token usage of a model call, reported or estimated, its cost in credits, and an upper bound of the cost. Pure.

The cost in dollars is computed by a capability: `lemming.kernel.plugins.capability_loader.load_pricing`.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from math import ceil
from typing import NamedTuple

from lemming.kernel.base.errors import OutOfCredits
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.files.fast_decoder import MAX_AMOUNT
from lemming.kernel.org.model_entries import PROVIDERS_WITHOUT_MODEL, ModelEntry
from lemming.kernel.org.resume import AgentCredits
from lemming.kernel.plugins.capability_loader import load_pricing
from lemming.kernel.plugins.capability_table import provided
from lemming.kernel.providers import Message, Reply, Request


@dataclass(slots=True)  # made for every call, and a named tuple takes twice as long
class Usage:
    """Usage of one call. Tokens are estimates (a quarter of the bytes) if the backend reported none."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int
    is_estimated: bool
    credits: float
    cost_usd: float | None
    written_tokens: int = 0


def compute_usage(entry: ModelEntry, messages: list[Message], reply: Reply) -> Usage:
    """Return the usage and cost of a reply, by its model's entry.

    `cost_usd` is None, not 0, if no price is known. A batch lowers the price in dollars, not in credits: an
    agent's allowance must not depend on the transport of its calls.
    """
    used = tokens_used(messages, reply, provider=entry.provider)
    cost = entry.per_call
    cost += used.input / 1000 * entry.per_1k_input_tokens + used.output / 1000 * entry.per_1k_output_tokens
    dollars: float | None = None
    if entry.usd_per_million_input_tokens is not None or entry.provider in provided("pricing"):
        compute_dollars = load_pricing()
        dollars = compute_dollars(entry, used, batched=reply.batched) if compute_dollars else None
    credits = round(min(cost, MAX_AMOUNT), 6) if cost else 0.0
    return Usage(used.input, used.output, used.cached, used.is_estimated, credits, dollars, used.written)


def check_credits(entry: ModelEntry, allocation: AgentCredits, spent: float) -> None:
    """Raise `OutOfCredits` if the minimum cost of one more call exceeds the remaining credits."""
    limit = allocation.max_credits
    # Rounded as in the ledger: a sum of floats may lie a hair above the limit that it just reaches.
    if limit is not None and (spent >= limit or round(spent + entry.per_call, 6) > limit):
        raise OutOfCredits(
            f"out of credits: {spent:g} of {limit:g} spent, a call costs {entry.per_call:g}",
            hint="grant more with `lemming credits grant`",
        )


def has_reached_soft_cap(allocation: AgentCredits, spent: float) -> bool:
    """Return True if the agent should be warned about the spending."""
    return allocation.soft_cap is not None and spent >= allocation.soft_cap


# --- maximum cost of one call ---------------------------------------------------------------------
# A token has at least one byte, so a prompt has no more tokens than bytes; the overheads cover a server's
# additions around messages, tools and schemas.


CALL_OVERHEAD_TOKENS = 1024
MESSAGE_OVERHEAD_TOKENS = 64
IMAGE_TOKENS = 20_000
_MICRO = Decimal("0.000001")  # ledgers hold credits so


class CostBound(NamedTuple):
    """Upper bound of one call: the cost in credits, and the tokens, input and output together."""

    credits: Decimal
    tokens: int


def max_input_tokens(request: Request) -> int:
    """Return the maximum number of input tokens of a request."""
    tokens = CALL_OVERHEAD_TOKENS + IMAGE_TOKENS * len(request.images)
    for message in request.messages:
        text = message["content"] if len(message) == 2 else to_line(message)
        tokens += MESSAGE_OVERHEAD_TOKENS + _utf8_size(text)
    return tokens + (_utf8_size(to_line(request.schema)) if request.schema else 0)


def _utf8_size(text: str) -> int:
    """Return the size of a text in bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def cost_bound(entry: ModelEntry, tokens_in: int) -> CostBound:
    """Return the cost bound of a call with `estimate_prompt_tokens` input tokens, by its model's entry.

    >>> cost_bound(ModelEntry(provider="x", per_1k_input_tokens=2.0, max_output_tokens=1), 500)
    CostBound(credits=Decimal('2.000000'), tokens=501)
    """
    credits = to_decimal(entry.per_call)
    credits += tokens_in * to_decimal(entry.per_1k_input_tokens) / 1000
    credits += entry.max_output_tokens * to_decimal(entry.per_1k_output_tokens) / 1000
    return CostBound(credits.quantize(_MICRO, ROUND_CEILING), tokens_in + entry.max_output_tokens)


def max_dollars(entry: ModelEntry, tokens_in: int) -> float | None:
    """Return the maximum cost in dollars of a call with `tokens_in` input tokens, or None without a price."""
    if entry.usd_per_million_input_tokens is None and entry.provider not in provided("pricing"):
        return None
    if (compute_dollars := load_pricing()) is None:
        return None
    # input read from a cache, written to one, or neither: the most expensive counts
    cache_cases = ((0, 0), (tokens_in, 0), (0, tokens_in))
    usages = [Tokens(tokens_in, entry.max_output_tokens, cached, False, written) for cached, written in cache_cases]
    costs = [compute_dollars(entry, tokens, batched=False) for tokens in usages]
    return None if None in costs else ceil(max(costs) * 1e12) / 1e12


def to_decimal(amount: float) -> Decimal:
    """Return an amount as an exact decimal number, as written."""
    return Decimal(repr(amount))


MAX_BYTES_PER_TOKEN = 1024
"""Real ones have a hundred at most: a server that counts fewer tokens has not counted."""
MAX_TOKENS = 1 << 40  # of one call; more is a backend's mistake and would end in infinite credits


@dataclass(slots=True)  # made for every call, and a named tuple takes twice as long
class Tokens:
    """Token usage of a call. Estimates (a quarter of the bytes) replace missing counts."""

    input: int
    output: int
    cached: int
    is_estimated: bool
    written: int = 0


def estimate_prompt_tokens(messages: list[Message]) -> int:
    """Return an estimate of a prompt's tokens.

    >>> estimate_prompt_tokens([dict(role="user", content="Say hello.")])
    3
    """
    tokens = 0
    for message in messages:
        text, extra_keys = message["content"], ("tools", "calls", "kept") if len(message) > 2 else ()
        extra_values = [message[key] for key in extra_keys if message.get(key)]
        tokens += estimate_tokens(f"{text}{to_line(extra_values)}" if extra_values else text)
    return tokens


def tokens_used(messages: list[Message], reply: Reply, *, provider: str = "") -> Tokens:
    """Return the token usage of a call, as reported in the reply or estimated from the texts.

    `provider`: the name of the answering provider.

    >>> tokens_used([dict(role="user", content="Say hello.")], Reply("x" * 4096, 0, 1))
    Tokens(input=3, output=1024, cached=0, is_estimated=True, written=0)
    """
    counted_in, counted_out = _to_count(reply.input_tokens), _to_count(reply.output_tokens)
    written = _to_count(reply.written_tokens) or 0 if reply.written_tokens else 0
    cached = _to_count(reply.cached_tokens) or 0 if reply.cached_tokens else 0
    if provider in PROVIDERS_WITHOUT_MODEL and counted_in is not None and counted_out is not None:
        return Tokens(counted_in, counted_out, cached, False, written)
    estimated_in = estimate_prompt_tokens(messages)
    estimated_out = estimate_tokens(f"{reply.text}{to_line([*reply.calls])}" if reply.calls else reply.text)
    if counted_in is not None and counted_in * MAX_BYTES_PER_TOKEN < estimated_in * 4:
        counted_in = None
    if counted_out is not None and counted_out * MAX_BYTES_PER_TOKEN < estimated_out * 4:
        counted_out = None
    return Tokens(
        estimated_in if counted_in is None else counted_in,
        estimated_out if counted_out is None else counted_out,
        cached,
        counted_in is None or counted_out is None,
        written,
    )


def usage_at_path(usage: object, *keys: str) -> int | None:
    """Return the count at a key path in a backend's usage report, or None.

    >>> usage_at_path({"details": {"cached": 3.0}}, "details", "cached"), usage_at_path({"cached": 1.5}, "cached")
    (3, None)
    """
    for key in keys:
        usage = usage.get(key) if isinstance(usage, dict) else None
    return _to_count(usage)


def _to_count(tokens: object) -> int | None:
    """Return a backend's token count, or None for a missing or impossible count."""
    if tokens is None:
        return None
    if isinstance(tokens, float) and tokens.is_integer():  # a server whose JSON has only floats
        tokens = int(tokens)
    if isinstance(tokens, int) and not isinstance(tokens, bool) and 0 <= tokens <= MAX_TOKENS:
        return tokens
    return None


def estimate_tokens(text: str) -> int:
    """Return an estimate of a text's tokens: a quarter of its bytes."""
    return (_utf8_size(text) + 3) // 4
