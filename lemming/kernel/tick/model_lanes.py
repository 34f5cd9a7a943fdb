"""Assign lanes to agents: a model with more parallel calls than the default has its own lane."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import LemmingError
from lemming.kernel.org.config import Config
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.plugins.capability_table import NO_MODELS
from lemming.kernel.tick.executors.lanes import Lane


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
