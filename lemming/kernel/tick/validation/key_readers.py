"""Find the capabilities that read keys in settings or a resume; other capabilities are not loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lemming.kernel.agents import Agent
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.plugins.capability_loader import get_capability
from lemming.kernel.plugins.capability_table import SHIPPED

if TYPE_CHECKING:
    from lemming.kernel.turn.turn_hooks import Capability


def capabilities_with_keys(source: OrgSettings | Agent) -> list[Capability]:
    """Return the shipped capabilities with keys in the settings or the resume."""
    if not source.extensions:
        return []
    is_agent = isinstance(source, Agent)
    members = source.extensions["team"].ask_members if is_agent and "team" in source.extensions else ()
    of_members = {key for member in members for key in member.extensions}
    keys = ((spec.name, spec.resume if is_agent else spec.org, spec.members) for spec in SHIPPED.values())
    return [
        get_capability(name)
        for name, own_keys, member_keys in keys
        if not (own_keys.keys().isdisjoint(source.extensions) and member_keys.keys().isdisjoint(of_members))
    ]
