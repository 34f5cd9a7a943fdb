"""The key `gates` of `config/org.json` and of resumes, the rules by both, and whom these can ask."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lemming.capabilities.gates.format import GATES, Gate, Rule
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.files.fitting import about
from lemming.kernel.org.config import Org


@dataclass(frozen=True, kw_only=True)
class OfOrg:
    """What `config/org.json` says of gates."""

    gates: list[Gate] = field(
        default_factory=list,
        metadata=about(
            "Rules for all agents, asked in this order and before those of a resume: docs/gates.md."
        ),
    )


@dataclass(frozen=True, kw_only=True)
class OfResume:
    """What a resume says of gates."""

    gates: list[Gate] = field(
        default_factory=list,
        metadata=about(
            "Rules for what it is shown, calls and writes, after the organisation's: docs/gates.md."
        ),
    )


def gates_in(said: Org | Agent) -> Sequence[Gate]:
    """Return the gates that the settings, or a resume, have."""
    found: Sequence[Gate] = said.further.get(GATES, ())
    return found


def rules_in(said: Org | Agent) -> Iterator[Rule]:
    """Yield the gates that the settings, or a resume, have, each with its line."""
    file = paths.resume_file(said.name) if isinstance(said, Agent) else paths.ORG_FILE
    for place, gate in enumerate(gates_in(said)):
        yield Rule(f"{file}#/gates/{place}", gate)


def rules_for(agent: Agent, settings: Org) -> tuple[Rule, ...]:
    """Return the gates of an agent in the order in which they are asked: the organisation's, then its own."""
    return (*rules_in(settings), *rules_in(agent))


def whom_to_ask(
    persons: Iterable[str], agents: Mapping[str, Agent], agent: str, named: Collection[str]
) -> list[str]:
    """Return the persons who can be asked something, and answer: each may read the other. None named: all."""
    people = [name for name in persons if name in agents and (not named or name in named)]
    return sorted(it for it in people if agents[it].may_read(agent) and agents[agent].may_read(it))
