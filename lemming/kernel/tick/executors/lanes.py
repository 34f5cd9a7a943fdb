"""Lanes of turns: how many of each may be under way at once, and which may begin next.

Turns of one lane would only wait for the same model: they hold up no turn of another lane.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from heapq import heappop, heappush
from typing import NamedTuple

Item = tuple[int, int]
"""What is to be done: the turns of the agent at a place in the order, number 0; or one of its row, from 1."""


class Lane(NamedTuple):
    """A lane, by its name, and how many of its turns may be under way at once."""

    name: str
    room: int


class _Line:
    """The turns of one lane: those that are ready, and the number of those under way."""

    def __init__(self, room: int) -> None:
        self.room, self.under_way = room, 0
        self.ready: list[Item] = []


class ReadyTurns:
    """Turns that may begin, by their lanes; within a lane, in order.

    Each is taken out once, also where `drop` comes from a thread that has been interrupted.
    """

    def __init__(self, order: list[str], lane_of: Callable[[str], Lane]) -> None:
        self._order, self._lane_of = order, lane_of
        self._lines: dict[str, _Line] = {}
        self._line_at: dict[int, _Line] = {}

    def __len__(self) -> int:
        total = 0
        for line in self._lines.values():
            total += len(line.ready)
        return total

    def add(self, item: Item) -> None:
        """Add a turn that may begin."""
        rank = item[0]
        line = self._line_at.get(rank)
        if line is None:
            lane = self._lane_of(self._order[rank])
            line = self._line_at[rank] = self._lines.setdefault(lane.name, _Line(lane.room))
        heappush(line.ready, item)

    def take(self) -> Item | None:
        """Return the first turn that is ready and has room; None where none is."""
        while True:
            first: _Line | None = None
            try:
                for line in self._lines.values():
                    if line.ready and line.under_way < line.room:
                        first = line if first is None or line.ready[0] < first.ready[0] else first
                if first is None:
                    return None
                item = heappop(first.ready)
            except IndexError:  # it was dropped meanwhile
                continue
            first.under_way += 1
            return item

    def end(self, item: Item) -> None:
        """Make room: a turn that was taken is over."""
        self._line_at[item[0]].under_way -= 1

    def drop(self) -> int:
        """Forget all that are ready; return how many they were."""
        dropped = 0
        for line in [*self._lines.values()]:
            with contextlib.suppress(IndexError):
                while True:
                    line.ready.pop()
                    dropped += 1
        return dropped
