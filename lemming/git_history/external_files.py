"""Files outside the organisation's usual folders that still belong to the organisation.

Every copy and history of an organisation includes these files, because prompts were made from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lemming.kernel.agents import Agent
from lemming.kernel.inboxes.capability_state import D
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.plugins.capability_loader import capabilities_of_resume, get_capability
from lemming.kernel.turn.descriptions import OrgQuery, OutsideFile, OutsideRoot


def list_external_roots(base: OrgPath, agents: Iterable[Agent]) -> list[str]:
    """Return the external files and folders that capabilities search for the agents."""
    return sorted({root.path for root in _ask_users(OutsideRoot, base, agents)})


def list_external_files(base: OrgPath, agents: Iterable[Agent]) -> list[str]:
    """Return the existing external files, sorted."""
    return sorted({file.path for file in _ask_users(OutsideFile, base, agents)})


def _ask_users(kind: type[D], base: OrgPath, agents: Iterable[Agent]) -> Iterator[D]:
    """Yield the descriptions of each capability for the agents with its keys."""
    users: dict[str, dict[str, Agent]] = {}
    for agent in agents:
        for name in capabilities_of_resume(agent):
            users.setdefault(name, {})[agent.name] = agent
    for name, agents_by_name in users.items():
        yield from OrgQuery(kind, Organisation.from_path(base), agents_by_name).ask(get_capability(name))
