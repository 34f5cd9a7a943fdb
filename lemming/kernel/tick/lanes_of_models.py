"""Which lane the turns of an agent take: its model's own, where that takes more calls than others may."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import LemmingError
from lemming.kernel.org.config import Config
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.plugins.shipped import NO_MODELS
from lemming.kernel.tick.executors.lanes import Lane


def lanes_of(
    agents: Mapping[str, Agent], config: Config, most_calls: Callable[[ModelEntry], int | None]
) -> Callable[[str], Lane]:
    """Return what says the lane of an agent.

    `most_calls`: how many calls a line's model takes at once, as far as that is known.
    """
    shared = Lane("", config.org.parallel)

    @cache
    def lane_of_line(key: str) -> Lane:
        try:
            entry = config.model(key)
            room = None if entry.provider in NO_MODELS else most_calls(entry)
        except LemmingError:  # the turn fails for it, and says so
            return shared
        # Not less than for others: a turn also waits for its tools.
        return shared if room is None or room <= shared.room else Lane(key, room)

    def lane_of(name: str) -> Lane:
        agent = agents.get(name)
        return lane_of_line(agent.model.key) if agent else shared

    return lane_of
