"""Lanes limit the number of concurrent turns per model and select the next turn to start.

Turns of a lane would only wait for the same model, and never delay a turn of another lane.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import cache
from heapq import heappop, heappush
from typing import NamedTuple

from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import LemmingError
from lemming.kernel.org.config import Config
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.plugins.capability_table import NO_MODELS

Item = tuple[int, int]
"""A unit of work: the agent's position in the order, and 0 for its turns or, from 1, one turn of its group."""


class Lane(NamedTuple):
    """A lane, by name, with the maximum number of its concurrent turns."""

    name: str
    capacity: int


class _LaneQueue:
    """The turns of a lane: the ready turns, and the number of running turns."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.running = capacity, 0
        self.ready: list[Item] = []


class ReadyTurns:
    """Turns that can start, by lane, in order; each is taken once, even if `drop` runs in an interrupted thread."""

    def __init__(self, order: list[str], lane_of: Callable[[str], Lane]) -> None:
        self._order, self._lane_of = order, lane_of
        self._queues: dict[str, _LaneQueue] = {}
        self._queue_by_rank: dict[int, _LaneQueue] = {}

    def __len__(self) -> int:
        total = 0
        for queue in self._queues.values():
            total += len(queue.ready)
        return total

    def add(self, item: Item) -> None:
        """Add a turn that can start."""
        rank = item[0]
        queue = self._queue_by_rank.get(rank)
        if queue is None:
            lane = self._lane_of(self._order[rank])
            queue = self._queue_by_rank[rank] = self._queues.setdefault(lane.name, _LaneQueue(lane.capacity))
        heappush(queue.ready, item)

    def take(self) -> Item | None:
        """Return the first ready turn in a lane with capacity, or None."""
        while True:
            first: _LaneQueue | None = None
            try:
                for queue in self._queues.values():
                    if queue.ready and queue.running < queue.capacity:
                        first = queue if first is None or queue.ready[0] < first.ready[0] else first
                if first is None:
                    return None
                item = heappop(first.ready)
            except IndexError:  # it was dropped meanwhile
                continue
            first.running += 1
            return item

    def finish(self, item: Item) -> None:
        """Release the lane capacity of a finished turn."""
        self._queue_by_rank[item[0]].running -= 1

    def drop(self) -> int:
        """Drop all ready turns and return their number."""
        dropped = 0
        for queue in [*self._queues.values()]:
            with contextlib.suppress(IndexError):
                while True:
                    queue.ready.pop()
                    dropped += 1
        return dropped


def make_lane_lookup(
    agents: Mapping[str, Agent], config: Config, max_calls: Callable[[ModelEntry], int | None]
) -> Callable[[str], Lane]:
    """Return a function that returns the lane of an agent.

    `max_calls` returns the maximum number of parallel calls to an entry's model, or None if unknown.
    """
    shared = Lane("", config.org.parallel_limit)

    @cache
    def get_model_lane(key: str) -> Lane:
        try:
            entry = config.model(key)
            capacity = None if entry.provider in NO_MODELS else max_calls(entry)
        except LemmingError:  # the turn fails and reports it
            return shared
        # Not less than for others: a turn also waits for its tools.
        return shared if capacity is None or capacity <= shared.capacity else Lane(key, capacity)

    def get_lane(name: str) -> Lane:
        agent = agents.get(name)
        return get_model_lane(agent.model.key) if agent else shared

    return get_lane
