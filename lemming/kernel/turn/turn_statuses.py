"""Statuses of a turn that ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lemming.kernel.journal.turn_report import End, Status

if TYPE_CHECKING:
    from lemming.kernel.turn.turn_state import TurnState

REPETITION_REMARK = "the same call was made again and again, and gave the same"


def is_applied(status: Status) -> bool:
    """Return True if the files of a turn with this status are written."""
    return status in ("done", "waiting")


def end_repeating_turn(turn_state: TurnState, end: End) -> End:
    """End a turn whose calls only repeat earlier ones, so that no further turn is taken for their results."""
    if turn_state.get_status(end) != "waiting" or turn_state.pending_indexes or not turn_state.repeats.is_cycling:
        return end
    turn_state.shown_count = len(turn_state.results)  # no news for its next turn
    turn_state.remarks.append(REPETITION_REMARK)
    return "repeats"
