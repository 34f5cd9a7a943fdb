"""The screen of gates, in evaluation order."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from lemming.capabilities.gates.gate_format import Gate, GateRule
from lemming.capabilities.gates.gate_settings import iter_rules
from lemming.kernel.agents import load_agent, require_agent_folder, survey_agents
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.queries.screens.screen import Column, Parameter, Screen


class _GateRow(NamedTuple):
    rule: GateRule
    owner: str | None


def list_gates(
    org: Organisation,
    agent: Annotated[str | None, Parameter("--agent AGENT", "Show gates that apply to this agent only.")] = None,
) -> list[_GateRow]:
    """List gates in evaluation order.

    Gates of config/org.json come first and apply to all agents; gates of a resume follow and apply to the
    agent.

    \b
    Examples:
      lemming gates list
      lemming gates list --agent ada
    """
    if agent:
        require_agent_folder(org, agent)
    owners = [load_agent(org, agent)] if agent else survey_agents(org).agents.values()
    rows = [_GateRow(rule, None) for rule in iter_rules(load_config(org).org)]
    return rows + [_GateRow(rule, owner.name) for owner in owners for rule in iter_rules(owner)]


def _format_scope(gate: Gate) -> str:
    """Return the conditions of a gate as written in its file."""
    conditions = {key: value for key, value in gate.file_value.items() if key not in ("at", "then", "because")}
    return to_line(conditions) if conditions else "all"


GATES = Screen(
    "gates",
    kind="gate",
    title="Gates",
    command="gates list",
    query=list_gates,
    empty="no gates: every call is allowed. `lemming gates defaults` prints recommended gates",
    columns=(
        Column("line", "GATE", "Place of the gate in its file.", value=lambda row: row.rule.line),
        Column("", "AT", "Position in a turn.", text=lambda row: row.rule.gate.at),
        Column("", "APPLIES TO", "Conditions of the gate.", text=lambda row: _format_scope(row.rule.gate)),
        Column("", "THEN", "Action of the gate.", text=lambda row: row.rule.gate.then),
        Column("", "BECAUSE", "Reason that models and persons read.", text=lambda row: row.rule.gate.because),
        Column("gate", about="The gate as written in its file.", type=dict[str, Any], value=lambda row: row.rule.gate.file_value),
        Column("agent", about="Agent whose resume has the gate, or null.", type=str | None, value=lambda row: row.owner),
    ),
)  # fmt: skip
