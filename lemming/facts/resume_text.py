"""The text of a resume that somebody is typing: what would be wrong with it if it stood in the file."""

from __future__ import annotations

from lemming.agents import agent_folders, decode_resume
from lemming.base.errors import ConfigError, Problem
from lemming.facts.checks import problems_of_resume
from lemming.facts.looking import settings_to_look_by
from lemming.org.organisation import OrgPath


def problems_of_text(base: OrgPath, name: str, raw: bytes) -> list[Problem]:
    """Return what `validate` would say of an agent's resume if these bytes stood in its file."""
    try:
        document, config = decode_resume(name, raw), settings_to_look_by(base)
    except ConfigError as error:
        return [*error.problems]
    found = problems_of_resume(base, document.value, config, agent_folders(base), raw)
    return [*document.warnings, *found]
