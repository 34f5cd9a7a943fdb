"""Which capabilities read what the settings, or a resume, say; those without such a key load none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lemming.kernel.agents import Agent
from lemming.kernel.org.config import Org
from lemming.kernel.org.resume import says_of_turns
from lemming.kernel.plugins.capabilities import capability, why_missing
from lemming.kernel.plugins.shipped import SHIPPED

if TYPE_CHECKING:
    from lemming.kernel.turn.seams import Capability


def readers_of(said: Org | Agent) -> list[Capability]:
    """Return the capabilities that ship whose keys the settings, or a resume, have."""
    if not said.further:
        return []
    is_agent = isinstance(said, Agent)
    members = said.further["team"].members if is_agent and "team" in said.further else ()
    of_members = {key for member in members for key in member.further}
    keys = ((it.name, it.resume if is_agent else it.org, it.members) for it in SHIPPED.values())
    return [
        capability(name)
        for name, own, of_one in keys
        if not (own.keys().isdisjoint(said.further) and of_one.keys().isdisjoint(of_members))
    ]


def readers_of_turn(agent: Agent) -> list[Capability]:
    """Return the capabilities, of those here, all of whose keys stand in the `turn` of a resume."""
    keys = ((it.name, it.turn) for it in SHIPPED.values() if not it.resume)
    named = (name for name, own in keys if any(says_of_turns(agent.turn, key) for key in own))
    return [capability(name) for name in named if not why_missing(name)]
