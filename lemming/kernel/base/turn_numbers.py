"""Numbering of an agent's turns and entries in a tick, for records, reports and ids. Pure.

An agent's turns in a tick are numbered from 0. The number 0 never appears on disk, so the files of a tick
with one turn per agent have not changed. Calls, tool calls and checks of turn k are numbered from k *
100,000, so an agent and a number identify one call of a tick, regardless of its turn.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from hashlib import blake2b

from lemming.kernel.base.integers import parse_int

TURNS_PER_TICK = 64
"""The most turns that one agent takes in one tick."""
NUMBERS_PER_TURN = 100_000
"""Range of call numbers reserved for each turn: more than any turn makes."""


def turn_key(agent: str, turn: int) -> str:
    """Return the key of an agent's turn in a tick: the name for turn 0, `name#1` for turn 1.

    >>> turn_key("ada", 0), turn_key("ada", 3)
    ('ada', 'ada#3')
    """
    return f"{agent}#{turn}" if turn else agent


def list_turn_keys(agent: str, among: Container[str]) -> list[str]:
    """Return the keys of an agent's turns in `among`, in turn order, up to the first missing number.

    >>> list_turn_keys("ada", ["ada", "bob", "ada#1", "ada#3"])
    ['ada', 'ada#1']
    """
    if agent not in among:
        return []
    keys = [agent]
    while (key := f"{agent}#{len(keys)}") in among:
        keys.append(key)
    return keys


def split_key(key: str) -> tuple[str, int]:
    """Return the agent and the turn number of a turn key.

    >>> split_key("ada"), split_key("ada#3")
    (('ada', 0), ('ada', 3))
    """
    agent, _, turn = key.partition("#")
    return agent, parse_int(turn, le=TURNS_PER_TICK - 1) or 0


def first_number(turn: int) -> int:
    """Return the number of a turn's first call."""
    return turn * NUMBERS_PER_TURN


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
