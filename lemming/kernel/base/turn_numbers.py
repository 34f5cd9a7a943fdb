"""Several turns of one agent in one tick: how records, reports and ids tell them apart. Pure.

An agent's turns in a tick are numbered from 0. Nothing on disk names the number 0, so that what one turn a
tick writes is what it always was. Calls, tool calls and checks of turn k are numbered from k * 100,000, so
that an agent and a number name one call of a tick, whichever turn made it.
"""

from __future__ import annotations

from collections.abc import Container

from lemming.kernel.base.integers import read_int

TURNS_PER_TICK = 64
"""The most turns that one agent takes in one tick."""
NUMBERS_PER_TURN = 100_000
"""How many numbers of calls a turn has for itself: more than any turn makes."""


def turn_key(agent: str, turn: int) -> str:
    """Return the key of an agent's turn in a tick: the name for turn 0, `name#1` for turn 1.

    >>> turn_key("ada", 0), turn_key("ada", 3)
    ('ada', 'ada#3')
    """
    return f"{agent}#{turn}" if turn else agent


def keys_of(agent: str, among: Container[str]) -> list[str]:
    """Return the keys of an agent's turns of a tick that are among these, in the order of their numbers.

    >>> keys_of("ada", ["ada", "bob", "ada#1", "ada#3"])
    ['ada', 'ada#1']
    """
    if agent not in among:
        return []
    keys = [agent]
    while (key := f"{agent}#{len(keys)}") in among:
        keys.append(key)
    return keys


def split_key(key: str) -> tuple[str, int]:
    """Return the agent and the number of the turn that a key names.

    >>> split_key("ada"), split_key("ada#3")
    (('ada', 0), ('ada', 3))
    """
    agent, _, turn = key.partition("#")
    return agent, read_int(turn, le=TURNS_PER_TICK - 1) or 0


def first_number(turn: int) -> int:
    """Return the number of a turn's first call."""
    return turn * NUMBERS_PER_TURN
