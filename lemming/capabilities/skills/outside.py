"""Guides and skills that lie outside of the folders in which an organisation keeps everything else.

Whatever copies an organisation, or keeps its past, must take them along: prompts were made of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from lemming.capabilities.skills.finding import folders_of
from lemming.capabilities.skills.guides import GUIDE
from lemming.capabilities.skills.search import SkillSearch
from lemming.files.stamps import is_there
from lemming.org.organisation import OrgPath
from lemming.org.resume import Agent

_USUAL = ("agents", "config", "shared", "trust")


def outside_roots(agents: Iterable[Agent]) -> list[str]:
    """Return the files and folders at which these agents' guides and skills are looked for, outside."""
    roots: set[str] = set()
    for agent in agents:
        roots.update([GUIDE] if agent.guides else [])
        roots.update(folder for _, folder, _ in folders_of(agent))
    return sorted(root for root in roots if root.split("/")[0] not in _USUAL)


def outside_files(base: OrgPath, agents: Iterable[Agent]) -> list[str]:
    """Return the guides and the files of skills that are there, outside of the usual folders, sorted."""
    found: set[str] = set()
    for root in outside_roots(agents):
        if root == GUIDE:
            found.update([GUIDE] if is_there(f"{base}/{GUIDE}") else [])
            continue
        search = SkillSearch(Path(base), {})
        for folder in search.skills_below(root):
            found.update(f"{folder}/{file}" for file in search.files_in(folder))
    return sorted(found)
