"""The goal of a request for screens: how many of its turns are used. Read from entries and ledgers."""

from __future__ import annotations

from typing import TypedDict

from lemming.kernel.journal.ledger import read_state
from lemming.kernel.obligations.request_payloads import get_count
from lemming.kernel.org.organisation import OrgPath
from lemming.obligations.request_view import RequestView

_DEFAULT_MAX_TURNS = 5
_GOALS = "goals"


class GoalTurnsJson(TypedDict):
    """The turns of a request with a goal: those that were checked, and the most. `reached` is null while it is open."""

    turns: int
    max_turns: int
    reached: bool | None


def count_goal_turns(base: OrgPath, request: RequestView) -> GoalTurnsJson | None:
    """Return the turns of a request with `until`, or None for any other request."""
    goal = request.entry.payload.get("until")
    if not isinstance(goal, dict):
        return None
    for answer in request.answers:
        if isinstance(receipts := answer.payload.get("until"), dict):
            turns, limit = get_count(receipts, "turns") or 0, get_count(receipts, "max_turns") or 0
            return {"turns": turns, "max_turns": limit, "reached": receipts.get("reached") is True}
    counts = [read_state(base, name).kept.get(_GOALS, {}).get(request.entry.identity, 0) for name in request.targets]
    max_turns = get_count(goal, "max_turns") or _DEFAULT_MAX_TURNS
    return {"turns": max(counts, default=0), "max_turns": max_turns, "reached": None}
