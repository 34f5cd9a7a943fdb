"""Find the capabilities that read keys in settings or a resume; other capabilities are not loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lemming.kernel.agents import Agent
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.plugins.capability_loader import get_capability
from lemming.kernel.plugins.capability_table import (
    ORG_KEYS,
    RESUME_KEYS,
    SHIPPED,
    find_key_owners,
    find_member_capabilities,
)

if TYPE_CHECKING:
    from lemming.kernel.turn.turn_hooks import Capability


def capabilities_with_keys(source: OrgSettings | Agent) -> list[Capability]:
    """Return the shipped capabilities with keys in the settings or the resume."""
    if not source.extensions:
        return []
    is_agent = isinstance(source, Agent)
    names = {*find_key_owners(RESUME_KEYS if is_agent else ORG_KEYS, source.extensions)}
    if is_agent:
        names.update(find_member_capabilities(source))
    return [get_capability(name) for name in SHIPPED if name in names]
