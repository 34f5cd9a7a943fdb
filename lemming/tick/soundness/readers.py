"""Which capabilities read what the settings, or a resume, say; those without such a key load none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lemming.agents import Agent
from lemming.org.config import Org
from lemming.plugins.capabilities import capability
from lemming.plugins.shipped import SHIPPED

if TYPE_CHECKING:
    from lemming.turn.seams import Capability


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
