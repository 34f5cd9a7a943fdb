"""The conditions under which an organisation, an agent or a request uses a capability of the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def should_ask_people(agent: Any, config: Any) -> bool:
    """Return True if a gate of the organisation or of the agent asks persons."""
    rules = (rule for spec in (config.org, agent) for rule in spec.extensions.get("gates", ()))
    return any(rule.then == "ask" for rule in rules)


def has_schema(asker: Any, payload: Mapping[str, Any]) -> bool:
    """Return True if a request wants an answer that follows a schema."""
    request_payload = payload.get("asked") if "hands_on" in payload else payload
    return isinstance(request_payload, dict) and "schema" in request_payload


def has_judges(asker: Any, payload: Mapping[str, Any]) -> bool:
    """Return True if the answer to a request is judged."""
    return "verify" in payload or has_judged_members(asker)


def has_judged_members(agent: Any) -> bool:
    """Return True if the answers of a team member of this agent are judged."""
    return "team" in agent.extensions and any(
        "verify" in spec.extensions for spec in agent.extensions["team"].ask_members
    )


def has_planners(config: Any, agents: Any) -> bool:
    """Return True if an agent follows a plan."""
    keys = {key for key, line in config.models.items() if line.provider == "plan"}
    return any(spec.model.key in keys for spec in agents)


def has_gate_judges(config: Any, agents: Any) -> bool:
    """Return True if a judge decides for a gate."""
    return any(gate.by for source in (config.org, *agents) for gate in source.extensions.get("gates", ()))
