"""The key `gates` of `config/org.json` and of resumes, the rules of both, and the approvers of gates."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lemming.capabilities.gates.gate_format import GATE_POINTER, GATES, Gate, GateRule
from lemming.capabilities.gates.spending_limit import get_limits, parse_window
from lemming.ext import AskPerson, Effect, make_field
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.journal.turn_report import GateVerdict
from lemming.kernel.org.config import OrgSettings


@dataclass(frozen=True, kw_only=True)
class GatesOrgSettings:
    """Gates in `config/org.json`."""

    gates: list[Gate] = make_field(
        list, "Gates for all agents, evaluated in this order and before those of a resume: docs/gates.md."
    )


@dataclass(frozen=True, kw_only=True)
class GatesResumeSettings:
    """Gates in a resume."""

    gates: list[Gate] = make_field(list, "Gates for this agent, evaluated after the organisation's: docs/gates.md.")


def get_gates(owner: OrgSettings | Agent) -> Sequence[Gate]:
    """Return the gates of the settings or of a resume."""
    gates: Sequence[Gate] = owner.extensions.get(GATES, ())
    return gates


def iter_rules(*owners: OrgSettings | Agent) -> Iterator[GateRule]:
    """Yield the gates of the settings and of resumes, each with its location."""
    for owner in owners:
        file = paths.resume_file(owner.name) if isinstance(owner, Agent) else paths.ORG_FILE
        for index, gate in enumerate(get_gates(owner)):
            yield GateRule(f"{file}{GATE_POINTER}{index}", gate)


def list_spending_limits(settings: OrgSettings) -> list[dict[str, Any]]:
    """Return the spending limits of the organisation's gates as JSON values, with the location of each rule."""
    return [
        {
            "line": rule.line,
            "per": rule.gate.per,
            "window": str(parse_window(rule.gate.window) or ""),
            "limits": {key: float(amount) for key, amount in get_limits(rule.gate).items()},
            "then": rule.gate.then,
            "models": [*(rule.gate.models or ())],
        }
        for rule in iter_rules(settings)
        if get_limits(rule.gate)
    ]


def rules_for_agent(agent: Agent, settings: OrgSettings) -> tuple[GateRule, ...]:
    """Return the gates of an agent in order: first the gates of the organisation, then of the agent."""
    # In this order the first decision counts: no resume can take a gate of the organisation away.
    return (*iter_rules(settings, agent),)


def find_approvers(
    persons: Iterable[str], agents: Mapping[str, Agent], agent: str, approver_names: Collection[str] | None
) -> list[str]:
    """Return the persons with read access to the agent and back, as approvers. No `approver_names` allows all."""
    approvers = [name for name in persons if name in agents and (approver_names is None or name in approver_names)]
    return sorted(person for person in approvers if agents[person].may_read(agent) and agents[agent].may_read(person))


def build_question(
    subject: Effect, rules: Iterable[GateRule], verdicts: Iterable[GateVerdict], extra_reason: str = ""
) -> AskPerson:
    """Return a single question on behalf of all gates that ask. Each of them must accept the approver."""
    reasons = {verdict.line: verdict.why for verdict in verdicts}
    gates = [rule.gate for rule in rules if rule.line in reasons]
    persons = [frozenset(gate.persons) for gate in gates if gate.persons]
    asked_by, *other_lines = reasons
    return AskPerson(
        subject=subject,
        asked_by=asked_by,
        reason="; ".join(dict.fromkeys(filter(None, (*reasons.values(), extra_reason)))),
        persons=frozenset.intersection(*persons) if persons else None,
        expires=tuple(gate.expires for gate in gates if gate.expires is not None),
        other_lines=other_lines,
    )
