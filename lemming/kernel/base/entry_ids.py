"""The ids of entries: each follows from the tick, the author and the number of the entry. Pure.

Format: architecture guide, "Outbox Entry Format". Ids that people chose follow from nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from lemming.kernel.base.turn_numbers import TURNS_PER_TICK

ENTRIES_PER_TURN = 64
WAITING_FROM, REMINDERS_FROM, DECISIONS_FROM = 64, 128, 256  # apart: the same number is the same id
BY_HAND = ENTRIES_PER_TURN * TURNS_PER_TICK
"""The number of an entry whose id follows from no number: it comes after all others of its tick."""

_TURNS = {f"{turn:02x}": turn for turn in range(1, TURNS_PER_TICK)}


def entry_id(tick: int, agent: str, index: int, turn: int = 0) -> str:
    """Return the id of the entry that `agent` writes as number `index` (from 0) of a turn in `tick`.

    12 hex digits of BLAKE2b over the three. Nothing random: writing the same entry twice is one file. Those
    that wait for a moment are numbered from `WAITING_FROM`: they come late, as those by hand may. The ids of
    an agent's further turns in a tick begin with the number of the turn: so nobody has to try all of them.

    >>> entry_id(42, "planner", 0), entry_id(42, "planner", 0, turn=3)
    ('a6049e5decfa', '03aab7403253')
    """
    if turn:
        return f"{turn:02x}" + blake2b(f"{tick}/{agent}/{turn}/{index}".encode(), digest_size=5).hexdigest()
    return blake2b(f"{tick}/{agent}/{index}".encode(), digest_size=6).hexdigest()


def list_possible_turns(identity: str) -> tuple[int, ...]:
    """Return the numbers of the turns of a tick that can have written an entry with this id.

    >>> list_possible_turns("a6049e5decfa"), list_possible_turns("03aab7403253")
    ((0,), (0, 3))
    """
    turn = _TURNS.get(identity[:2])
    return (0, turn) if turn else (0,)


def turn_of(tick: int, agent: str, identity: str) -> int:
    """Return the number of the agent's turn in a tick that gave an entry this id; 0 where none did."""
    ids = (
        (turn, entry_id(tick, agent, it, turn))
        for turn in list_possible_turns(identity)[1:]
        for it in range(DECISIONS_FROM)
    )
    return next((turn for turn, derived in ids if derived == identity), 0)


def find_entry_numbers(tick: int, agent: str, ids: Sequence[str]) -> dict[str, int]:
    """Return the numbers of the entries that have an id of the engine's among those of one tick."""
    wanted = set(ids)
    numbers: dict[str, int] = {}
    for turn in sorted({0, *(_TURNS.get(identity[:2], 0) for identity in wanted)}):
        for number in range(ENTRIES_PER_TURN):
            if (derived := entry_id(tick, agent, number, turn)) in wanted:
                numbers[derived] = turn * ENTRIES_PER_TURN + number
                if len(numbers) == len(wanted):  # as nearly always: the numbers of a turn follow each other
                    return numbers
    return numbers
