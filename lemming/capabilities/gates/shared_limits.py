"""Spending limits shared by turns: the spending of one turn reduces the room of another. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lemming.capabilities.gates.gate_settings import rules_for_agent
from lemming.ext import SharedResource
from lemming.kernel.agents import Agent
from lemming.kernel.org.config import OrgSettings


def find_shared_limits(agents: Mapping[str, Agent], settings: OrgSettings) -> Iterator[SharedResource]:
    """Yield the shared limits: of the organisation with all requests, and of agent families.

    Every other limit on spending is a resource that nobody waits for: an agent's own turns run one after another.
    """
    holders: dict[str, set[str]] = {"agent": set(), "all": set(), "own": set()}
    for name, agent in agents.items():
        for _, gate in rules_for_agent(agent, settings):
            if gate.at == "spend":
                holders["own"].add(name)
            if gate.per not in (None, "turn"):
                holders["agent" if gate.per == "agent" else "all"].add(name)
    if holders["own"]:
        yield SharedResource("a limit per turn", frozenset(), frozenset())
    if holders["all"]:
        yield SharedResource("a limit per organisation or request", holders["all"], agents.keys())
    if holders["agent"]:
        for family in {*group_families(agents).values()}:
            if holders["agent"] & family:
                first = min(family)
                yield SharedResource(f"a limit per agent, of the family of {first}", holders["agent"] & family, family)


def group_families(agents: Mapping[str, Agent]) -> dict[str, frozenset[str]]:
    """Return the family of each agent: agents connected by creation."""
    members = dict[str, set[str]]()
    for name, agent in agents.items():
        first, visited = name, {name}
        while first in agents and (creator := agents[first].created_by) and creator not in visited:
            visited.add(first := creator)  # the creator may be gone
        if agent.created_by:
            members.setdefault(first, {first}).add(name)
    return {name: frozenset(family) for family in members.values() for name in family}
