"""Ids of entries, derived from the tick, the author and the entry's number. Pure.

Format: architecture guide, "Outbox Entry Format". Ids chosen by people are not derived.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from lemming.kernel.base.turn_numbers import TURNS_PER_TICK

ENTRIES_PER_TURN = 64
WAITING_FROM, REMINDERS_FROM, DECISIONS_FROM = 64, 128, 256  # apart: the same number is the same id
BY_HAND = ENTRIES_PER_TURN * TURNS_PER_TICK
"""Number of an entry without a derived id: sorted after all others of its tick."""

_TURNS = {f"{turn:02x}": turn for turn in range(1, TURNS_PER_TICK)}


def entry_id(tick: int, agent: str, index: int, turn: int = 0) -> str:
    """Return the id of entry number `index` (from 0) written by `agent` in a turn of `tick`.

    12 hex digits of BLAKE2b over the three values. Nothing is random: writing the same entry twice yields one
    file. Entries with a reveal time are numbered from `WAITING_FROM`, because they appear late, as manual
    entries may. The ids of an agent's later turns in a tick begin with the turn's number, which makes the
    turn easy to find.

    >>> entry_id(42, "planner", 0), entry_id(42, "planner", 0, turn=3)
    ('a6049e5decfa', '03aab7403253')
    """
    if turn:
        return f"{turn:02x}" + blake2b(f"{tick}/{agent}/{turn}/{index}".encode(), digest_size=5).hexdigest()
    return blake2b(f"{tick}/{agent}/{index}".encode(), digest_size=6).hexdigest()


def list_possible_turns(identity: str) -> tuple[int, ...]:
    """Return the turn numbers of a tick that could have produced this id.

    >>> list_possible_turns("a6049e5decfa"), list_possible_turns("03aab7403253")
    ((0,), (0, 3))
    """
    turn = _TURNS.get(identity[:2])
    return (0, turn) if turn else (0,)


def find_turn_number(tick: int, agent: str, identity: str) -> int:
    """Return the number of the agent's turn in a tick that produced this id, or 0."""
    ids = (
        (turn, entry_id(tick, agent, number, turn))
        for turn in list_possible_turns(identity)[1:]
        for number in range(DECISIONS_FROM)
    )
    return next((turn for turn, derived in ids if derived == identity), 0)


def find_entry_numbers(tick: int, agent: str, ids: Sequence[str]) -> dict[str, int]:
    """Return the entry numbers for the engine's own ids among the ids of a tick."""
    remaining_ids = set(ids)
    numbers: dict[str, int] = {}
    for turn in sorted({0, *(_TURNS.get(identity[:2], 0) for identity in remaining_ids)}):
        for number in range(ENTRIES_PER_TURN):
            if (derived := entry_id(tick, agent, number, turn)) in remaining_ids:
                numbers[derived] = turn * ENTRIES_PER_TURN + number
                if len(numbers) == len(remaining_ids):  # as nearly always: the numbers of a turn follow each other
                    return numbers
    return numbers
