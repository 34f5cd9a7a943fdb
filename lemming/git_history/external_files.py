"""Files outside the organisation's usual folders that still belong to the organisation.

Every copy and history of an organisation includes these files, because prompts were made from them.
"""

from __future__ import annotations

from collections.abc import Iterable

from lemming.kernel.agents import Agent
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.plugins.capability_loader import capabilities_of_resume, get_capability


def list_external_roots(agents: Iterable[Agent]) -> list[str]:
    """Return the external files and folders that capabilities search for the agents."""
    return sorted(
        {root for name, users in _group_by_capability(agents) for root in get_capability(name).external_roots(users)}
    )


def list_external_files(base: OrgPath, agents: Iterable[Agent]) -> list[str]:
    """Return the existing external files, sorted."""
    file_lists = (get_capability(name).external_files(base, users) for name, users in _group_by_capability(agents))
    return sorted({file for files in file_lists for file in files})


def _group_by_capability(agents: Iterable[Agent]) -> Iterable[tuple[str, list[Agent]]]:
    users: dict[str, list[Agent]] = {}
    for agent in agents:
        for name in capabilities_of_resume(agent):
            users.setdefault(name, []).append(agent)
    return users.items()
