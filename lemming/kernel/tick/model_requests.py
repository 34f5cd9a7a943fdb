"""Build a model request, and check it against pauses and limits before the call."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from lemming.kernel.base.errors import Paused, RequestOverLimit
from lemming.kernel.journal.journal_records import ModelReplied, Record
from lemming.kernel.journal.write_offs import WriteOff
from lemming.kernel.llm.call_cost import check_credits, cost_bound, max_input_tokens
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.providers import Message, Request
from lemming.kernel.tick.snapshot import Snapshot
from lemming.kernel.turn.turn_values import TurnInputs


def build_request(
    inputs: TurnInputs, entry: ModelEntry, call: int, messages: list[Message], schema: dict[str, Any] | None
) -> Request:
    """Return model request number `call` of a turn; `schema` as in `lemming.kernel.turn.strategy.Ask`."""
    name, temperature = inputs.agent.name, inputs.agent.model.temperature
    # True if the agent's own model accepts one: the turn may omit it.
    takes_schema = inputs.form.takes_schema if inputs.form else inputs.schema is not None
    return Request(
        model_name=entry.model,
        messages=messages,
        temperature=entry.temperature if temperature is None else temperature,
        schema=inputs.schema if schema is None else (schema or None) if takes_schema else None,
        max_output_tokens=entry.max_output_tokens,
        seed=_call_seed(name, inputs.tick, call),
        deadline_s=entry.deadline_s,
        agent=name,
        tick=inputs.tick,
        step=call,
    )


def require_affordable(
    inputs: TurnInputs,
    entry: ModelEntry,
    request: Request,
    used: float,
    answers: Iterable[Record],
    unsettled: WriteOff,
) -> None:
    """Raise `OutOfCredits` if the agent, or the request of its turn, cannot pay for a model call.

    `used`: credits spent so far by the agent. `answers`: answers of the turn. `unsettled`: possible spending besides.
    """
    check_credits(entry, inputs.allocation, used)
    if inputs.task is None:
        return
    replied = (answer for answer in answers if isinstance(answer, ModelReplied))
    if reason := inputs.task.over_budget_reason(replied, unsettled, cost_bound(entry, max_input_tokens(request))):
        raise RequestOverLimit(reason)


def require_not_paused(snapshot: Snapshot, request: Request) -> None:
    """Raise `Paused` if the agent of a request has been paused since the tick began."""
    if not snapshot.pause_check.has_no_pause(request.agent):
        raise Paused(snapshot.pause_check.pause_reason(request.agent), hint="end it with `lemming unpause`")


def _call_seed(agent: str, tick: int, call: int) -> int:
    """Return a seed in [0, 2^31), derived only from agent, tick and call number."""
    digest = blake2b(f"{agent}/{tick}/{call}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") >> 1
