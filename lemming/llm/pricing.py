"""What a model call costs, in credits and in money, and whether an agent may make it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from lemming.agents import AgentCredits
from lemming.errors import OutOfCredits
from lemming.files.fitting import LARGEST_AMOUNT
from lemming.llm.prices import price_of
from lemming.llm.tokens import tokens_used
from lemming.org.models import ModelEntry
from lemming.providers import Message, Reply


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
