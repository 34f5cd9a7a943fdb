"""How far a turn is trusted by now, for those beside it who have to know. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from lemming.capabilities.trust.order import TRUST
from lemming.turn.values import TurnInputs

if TYPE_CHECKING:
    from lemming.capabilities.trust.turn import TurnTrust
    from lemming.turn.draft import Draft


def trust_of_turn(inputs: TurnInputs) -> TurnTrust | None:
    """Return how far a turn is trusted as it goes on; None where nobody tracks that."""
    if TRUST not in inputs.given:
        return None
    from lemming.capabilities.trust.turn import TurnTrust  # only where it is tracked

    return TurnTrust(inputs.given[TRUST], inputs.agent.name, inputs.tick)


def trust_by_now(draft: Draft) -> str:
    """Return the word for how far a turn is trusted by now; empty where nobody tracks that."""
    return str(draft.noted[TRUST]["is"]) if TRUST in draft.noted else ""


def kept_results(
    inputs: TurnInputs, results: list[dict[str, Any]], given: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return results of a turn that was given up, as its next one is told; `given` is what calls gave."""
    if (turn := trust_of_turn(inputs)) is None:
        return results
    for told in given:
        turn.take(told)
    return [*map(turn.kept, results)]
