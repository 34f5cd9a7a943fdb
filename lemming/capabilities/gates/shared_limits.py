"""Which turns share limits: what one spends may be what another may not. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lemming.capabilities.gates.keys import rules_for
from lemming.kernel.agents import Agent
from lemming.kernel.org.config import Org
from lemming.kernel.turn.places import Shared


def shared_limits(agents: Mapping[str, Agent], settings: Org) -> Iterator[Shared]:
    """Yield what turns share: what the organisation spends, with all requests, and what families spend."""
    held: dict[str, set[str]] = {"agent": set(), "all": set()}
    for name, agent in agents.items():
        for _, gate in rules_for(agent, settings):
            if gate.per not in (None, "turn"):
                held["agent" if gate.per == "agent" else "all"].add(name)
    if held["all"]:
        yield Shared("a limit per organisation or request", held["all"], agents.keys())
    if held["agent"]:
        for family in {*families_among(agents).values()}:
            if held["agent"] & family:
                first = min(family)
                yield Shared(f"a limit per agent, of the family of {first}", held["agent"] & family, family)


def families_among(agents: Mapping[str, Agent]) -> dict[str, frozenset[str]]:
    """Return the families of agents that were created by others, by each agent of them."""
    members = dict[str, set[str]]()
    for name, agent in agents.items():
        first, seen = name, {name}
        while first in agents and (above := agents[first].created_by) and above not in seen:
            seen.add(first := above)  # whoever created them may be gone
        if agent.created_by:
            members.setdefault(first, {first}).add(name)
    return {name: frozenset(family) for family in members.values() for name in family}
