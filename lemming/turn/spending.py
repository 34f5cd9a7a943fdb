"""What a turn used and cost, and what that makes of the agent's state. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lemming.files.fitting import LARGEST_AMOUNT
from lemming.journal.ledger import AgentState
from lemming.report import Status
from lemming.turn.values import Answer, TurnInputs


def spending(answers: Sequence[Answer]) -> dict[str, Any]:
    """Return what answers used and cost, as keys of a `TurnReport`."""
    costs = _known_costs(answers)
    return {
        "calls": len(answers),
        "credits": sum([answer.credits for answer in answers]),
        "cost_usd": sum(costs) if costs and len(costs) == len(answers) else None,
        "input_tokens": sum([answer.input_tokens for answer in answers]),
        "output_tokens": sum([answer.output_tokens for answer in answers]),
        "duration_ms": sum([answer.duration_ms for answer in answers]),
    }


def state_after_spending(
    inputs: TurnInputs, answers: Sequence[Answer], used: dict[str, Any], status: Status
) -> AgentState:
    """Return an agent's state with what this turn `used`, and nothing else that is new."""
    before, costs = inputs.state, _known_costs(answers)
    return AgentState(
        tick=inputs.tick,
        status=status,
        turns=before.turns,
        credits=round(min(before.credits + used["credits"], LARGEST_AMOUNT), 6),
        cost_usd=min((before.cost_usd or 0.0) + sum(costs), LARGEST_AMOUNT) if costs else before.cost_usd,
        unpriced_calls=before.unpriced_calls + len(answers) - len(costs),
        input_tokens=min(before.input_tokens + used["input_tokens"], int(LARGEST_AMOUNT)),
        output_tokens=min(before.output_tokens + used["output_tokens"], int(LARGEST_AMOUNT)),
        soft_cap_warned=before.soft_cap_warned,
        read=before.read,
        results=before.results,
        inputs=before.inputs,
        expired_unread=before.expired_unread,
        passed_on=before.passed_on,
        serving=before.serving,
        requests=before.requests,
        aside=before.aside,
        lost=before.lost,
        kept=before.kept,
        failed=before.failed + (status == "failed"),
    )


def _known_costs(answers: Sequence[Answer]) -> list[float]:
    return [answer.cost_usd for answer in answers if answer.cost_usd is not None]
