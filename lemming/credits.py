"""What a model call costs, in credits and in money, and whether an agent may make it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from lemming.agents import AgentCredits
from lemming.config import ModelEntry
from lemming.errors import OutOfCredits
from lemming.providers import Message, Reply

MOST_TOKENS = 1 << 40  # of one call; more is a backend's mistake and would end in infinite credits


@dataclass(frozen=True)
class Usage:
    """What one call used. Tokens are estimates (a quarter of the bytes) when the backend did not count."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int
    is_estimated: bool
    credits: float
    cost_usd: float | None


def usage_of(entry: ModelEntry, messages: list[Message], reply: Reply) -> Usage:
    """Return what a reply used and what it costs by its model's entry.

    `cost_usd` is None, not 0, when the entry gives no price. A batch lowers the price in dollars, not in
    credits: what an agent may do does not depend on how its calls were sent.
    """
    counted_in, counted_out = _counted(reply.input_tokens), _counted(reply.output_tokens)
    estimated = counted_in is None or counted_out is None
    tokens_in = (
        sum(_estimate(message["content"]) for message in messages) if counted_in is None else counted_in
    )
    tokens_out = _estimate(reply.text) if counted_out is None else counted_out
    cost = entry.per_call
    cost += tokens_in / 1000 * entry.per_1k_input_tokens + tokens_out / 1000 * entry.per_1k_output_tokens
    dollars = None
    if entry.usd_per_million_input_tokens is not None and entry.usd_per_million_output_tokens is not None:
        dollars = (
            tokens_in * entry.usd_per_million_input_tokens + tokens_out * entry.usd_per_million_output_tokens
        ) / 1e6
        if reply.batched:
            dollars *= entry.batch_price_factor
    cached = _counted(reply.cached_tokens) or 0
    return Usage(tokens_in, tokens_out, cached, estimated, round(cost, 6), dollars)


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


def _counted(tokens: object) -> int | None:
    """Return a backend's count; None when it says nothing, or nothing that can be a count."""
    if isinstance(tokens, int) and not isinstance(tokens, bool) and 0 <= tokens <= MOST_TOKENS:
        return tokens
    return None


def _estimate(text: str) -> int:
    return -(-len(text.encode("utf-8", "replace")) // 4)
