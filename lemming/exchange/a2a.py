"""An agent as an A2A agent card, version 1.0 (a2aproject/A2A, `specification/a2a.proto`). Pure.

What a card tells is for strangers: name, title, description and skills, never instructions or permissions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from lemming.kernel.org.resume import Agent

if TYPE_CHECKING:
    from lemming.capabilities.skills.skill import Skill

PROTOCOL_VERSION = "1.0"
_MODES = ["text/plain", "application/json"]


def card_of(
    agent: Agent, skills: Iterable[Skill], *, description: str, version: str, url: str, binding: str
) -> dict[str, Any]:
    """Return the card; `url` is where a server answers for the agent, in the protocol `binding`.

    An agent without skills has one: answering what it is asked.
    """
    title = agent.title or agent.name
    listed = [_skill(skill) for skill in skills if not skill.is_for_people]
    about = description or title
    answers = {"id": "answer", "name": title, "description": about, "tags": ["answer"]}
    return {
        "name": title,
        "description": about,
        "supportedInterfaces": [
            {"url": url, "protocolBinding": binding, "protocolVersion": PROTOCOL_VERSION}
        ],
        "version": version,
        "capabilities": {"streaming": False, "pushNotifications": False},
        "defaultInputModes": _MODES,
        "defaultOutputModes": _MODES,
        "skills": listed or [answers],
    }


def description_in(resume: dict[str, Any]) -> str:
    """Return what a resume says an agent is for: what an importer kept; empty where nothing does."""
    for key, kept in resume.items():
        if not key.startswith("x-") or not isinstance(kept, dict):
            continue
        for block in (kept, kept.get("agent")):
            found = block.get("description") if isinstance(block, dict) else None
            if isinstance(found, str) and found.strip():
                return " ".join(found.split())
    return ""


def _skill(skill: Skill) -> dict[str, Any]:
    metadata = skill.keys.get("metadata")
    tags = metadata.get("tags") if isinstance(metadata, dict) else None
    words = [str(tag) for tag in tags] if isinstance(tags, list) else []
    return {
        "id": skill.name,
        "name": skill.name.replace("-", " ").capitalize(),
        "description": skill.description,
        "tags": words or [skill.name],
    }
