"""Files that lie outside the folders in which an organisation keeps everything else, and belong to it.

Whatever copies an organisation, or keeps its past, takes them along: prompts were made of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from lemming.kernel.agents import Agent
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.plugins.capabilities import by_keys, capability


def outside_roots(agents: Iterable[Agent]) -> list[str]:
    """Return the files and folders at which capabilities look for files of these agents, outside."""
    return sorted({root for name, users in _users(agents) for root in capability(name).roots_outside(users)})


def outside_files(base: OrgPath, agents: Iterable[Agent]) -> list[str]:
    """Return the files that are there, outside of the usual folders, sorted."""
    found = (capability(name).files_outside(base, users) for name, users in _users(agents))
    return sorted({file for files in found for file in files})


def _users(agents: Iterable[Agent]) -> Iterable[tuple[str, list[Agent]]]:
    users: dict[str, list[Agent]] = {}
    for agent in agents:
        for name in by_keys(agent):
            users.setdefault(name, []).append(agent)
    return users.items()
