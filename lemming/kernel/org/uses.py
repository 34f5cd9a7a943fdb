"""Which capabilities an agent uses, by what settings and resumes say, and how it takes turns with them."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import NamedTuple

from lemming.kernel.org.config import Config
from lemming.kernel.org.resume import Agent, Take
from lemming.kernel.org.schedule import Wake
from lemming.kernel.plugins.capabilities import capability_here
from lemming.kernel.plugins.shipped import OF_PROVIDER, SHIPPED, USED


class Habits(NamedTuple):
    """How an agent takes turns whose brain is a capability's own.

    `wake` and `take`: what its resume comes to. `is_asked`: it has requests, and reads an inbox.
    `is_written`: what it says, people wrote in a file, and no model.
    """

    wake: Wake
    take: Take = None
    is_asked: bool = True
    is_written: bool = False


def named_by(agent: Agent, config: Config) -> AbstractSet[str]:
    """Return the names of the capabilities that a resume, or the settings, make use of."""
    own = {name for name, is_used in USED.items() if is_used(agent, config)}
    if agent.capabilities or config.org.capabilities:
        own |= {*agent.capabilities, *config.org.capabilities}
    if by := brain_of(agent, config):
        own.add(by)
    if not (agent.further or config.org.further):
        return own
    return own | {
        it.name
        for it in SHIPPED.values()
        if not (it.resume.keys().isdisjoint(agent.further) and it.org.keys().isdisjoint(config.org.further))
    }


def brain_of(agent: Agent, config: Config) -> str:
    """Return the capability whose provider speaks for an agent; empty: none does."""
    entry = config.models.get(agent.model.key)
    return OF_PROVIDER.get(entry.provider, "") if entry else ""


def habits_of(agent: Agent, config: Config) -> Habits:
    """Return how an agent takes turns: as its brain says, its resume, or the settings."""
    by = brain_of(agent, config)
    asked = capability_here(by) if by else None
    habits: Habits | None = asked.habits(agent) if asked is not None else None
    if habits:
        return habits
    return Habits(agent.schedule.wake or config.org.defaults.wake, agent.turn.take)
