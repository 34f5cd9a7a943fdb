"""Persons whom an agent can ask. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from lemming.kernel.agents import Agent


def whom_to_ask(
    persons: Iterable[str], agents: Mapping[str, Agent], agent: str, named: Collection[str]
) -> list[str]:
    """Return the persons who can be asked something, and answer: each may read the other. None named: all."""
    people = [name for name in persons if name in agents and (not named or name in named)]
    return sorted(it for it in people if agents[it].may_read(agent) and agents[agent].may_read(it))
