"""A question to a model: how it is put together, and whether it may be asked now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from lemming.kernel.base.errors import Paused, RequestOverLimit
from lemming.kernel.journal.lost_calls import NONE_LOST
from lemming.kernel.journal.records import ModelReplied, Record
from lemming.kernel.llm.credits import check_credits, most_of, most_tokens_in
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.providers import Message, Request
from lemming.kernel.tick.snapshot import Snapshot
from lemming.kernel.turn.places import SpendingLimits, Tracing
from lemming.kernel.turn.values import TurnInputs

if TYPE_CHECKING:
    from lemming.kernel.journal.verdicts import GateVerdict


def question(
    inputs: TurnInputs, entry: ModelEntry, call: int, messages: list[Message], schema: dict[str, Any] | None
) -> Request:
    """Return question number `call` of a turn; `schema` as in `lemming.kernel.turn.strategy.Ask`."""
    name, own = inputs.agent.name, inputs.agent.model.temperature
    # Whether the agent's own model takes one: its turn may go without.
    takes_schema = inputs.form.takes_schema if inputs.form else inputs.schema is not None
    return Request(
        model_name=entry.model,
        messages=messages,
        temperature=entry.temperature if own is None else own,
        schema=inputs.schema if schema is None else (schema or None) if takes_schema else None,
        max_output_tokens=entry.max_output_tokens,
        seed=_seed(name, inputs.tick, call),
        deadline_s=entry.deadline_s,
        agent=name,
        tick=inputs.tick,
        step=call,
    )


def require_paid_for(
    inputs: TurnInputs,
    entry: ModelEntry,
    request: Request,
    used: float,
    answers: Iterable[Record],
    limits: SpendingLimits | None,
) -> None:
    """Raise `OutOfCredits` for a question that the agent, or what its turn is for, may not cost.

    `used`: what the agent has spent so far; `answers`: those of the turn; `limits`: what else it may have.
    """
    check_credits(entry, inputs.allocation, used)
    if inputs.task is None:
        return
    replied = (it for it in answers if isinstance(it, ModelReplied))
    lost = limits.unsettled if limits else NONE_LOST
    if why := inputs.task.why_unpaid(replied, lost, most_of(entry, most_tokens_in(request))):
        raise RequestOverLimit(why)


def look_before(
    snapshot: Snapshot,
    limits: SpendingLimits | None,
    tracing: Tracing | None,
    key: str,
    entry: ModelEntry,
    request: Request,
) -> Iterator[GateVerdict]:
    """Yield what gates say of a question to the model of a key; raise `Paused`, or `LimitReached`."""
    if not snapshot.pauses.is_clear(request.agent):
        raise Paused(snapshot.pauses.why(request.agent), hint="`lemming resume` ends it")
    if limits is not None:
        yield from limits.look(request.step, key, entry, request, trust=tracing.word if tracing else "")


def _seed(agent: str, tick: int, call: int) -> int:
    """Return a seed in [0, 2^31) that depends on nothing but the call's place."""
    digest = blake2b(f"{agent}/{tick}/{call}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") >> 1
