"""Numbering of an agent's turns in a tick, for records, reports and ids. Pure.

An agent's turns in a tick are numbered from 0. The number 0 never appears on disk, so the files of a tick
with one turn per agent have not changed. Calls, tool calls and checks of turn k are numbered from k *
100,000, so an agent and a number identify one call of a tick, regardless of its turn.
"""

from __future__ import annotations

from collections.abc import Container

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
