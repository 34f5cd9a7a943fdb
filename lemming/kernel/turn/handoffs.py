"""Entries that hand a request to another agent, and questions that a request's budget cannot bound."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from lemming.kernel.base.contract import NewEntry
from lemming.kernel.messages import OutboxEntry, parse_targets
from lemming.kernel.turn.turn_effects import Rejected

if TYPE_CHECKING:
    from lemming.kernel.turn.current_request import CurrentRequest
    from lemming.kernel.turn.turn_writes import TurnWrites


def has_handoff(entries: Iterable[OutboxEntry]) -> bool:
    """Return True if one of a turn's entries hands the request off."""
    return any(entry.kind == "request" and "hands_on" in entry.payload for entry in entries)


def check_handoff(turn_state: TurnWrites, current: CurrentRequest | None, new_entry: NewEntry) -> NewEntry | Rejected:
    """Return a handoff entry as completed by the engine. Reject any other entry with `hands_on`.

    A handoff transfers the remaining budget and the duty to answer. Therefore the entry must move the request
    of this turn, at most once, to an agent listed in `hand_to`. The entry may come from a call of
    `hand_to_*`, from the approval of such a call, or from the model's own text.
    """
    team, text, target = (
        turn_state.inputs.agent.extensions.get("team"),
        new_entry.payload.get("text"),
        new_entry.payload.get("target"),
    )
    is_own = (
        current is not None
        and new_entry.payload["hands_on"] == current.reference
        and not has_handoff(turn_state.entries)
    )
    if current is None or not is_own or team is None or target not in team.hand_to or not isinstance(text, str):
        return Rejected(
            "refused: hands_on is the engine's to write; call hand_to_NAME to hand on what was asked of you"
        )
    if current.hops >= team.max_hops:
        return Rejected(f"refused: it was handed on {current.hops} times")
    handoff = current.make_handoff(text, str(target), turn_state.inputs.tick)
    return new_entry._replace(payload={**new_entry.payload, **handoff.payload})


def unbounded_agent_reason(names: Collection[str], new_entry: NewEntry) -> str:
    """Return the reason an entry for a request with a budget cannot ask its target, or an empty text."""
    if (name := next((target for target in sorted(parse_targets(new_entry.payload)) if target in names), None)) is None:
        return ""
    return (
        f"refused: what you were asked has a budget, and {name} takes what you ask in turns for its whole "
        f'inbox, which no budget bounds; name {name} in "team" of your resume and call ask_{name}'
    )
