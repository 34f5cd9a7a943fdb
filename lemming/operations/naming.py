"""References to a removed agent in resumes: in the lists of readers, and in teams."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lemming.kernel.agents import RESUME_LIMIT_BYTES, list_agent_folders
from lemming.kernel.base import paths
from lemming.kernel.base.jsontext import JsonProblem, dump_compact, parse, preserve_layout
from lemming.kernel.files import fs
from lemming.kernel.org.changing import edit_file
from lemming.kernel.org.organisation import OrgPath

Json = dict[str, Any]
_OF_PERMISSIONS, _OF_TEAM = ("read_outboxes", "read_memories"), ("ask", "hand_to")


def find_referring_agents(base: OrgPath, name: str) -> dict[str, list[str]]:
    """Return the agents whose resumes name an agent in a list, each with the keys of the lists."""
    keys_by_agent: dict[str, list[str]] = {}
    for other in filter(paths.AGENT_NAME.match, list_agent_folders(base)):
        try:
            resume = parse(fs.read_bytes(base / paths.resume_file(other), RESUME_LIMIT_BYTES), allow_bom=True)
        except (JsonProblem, OSError):  # `validate` reports the error
            continue
        if other != name and (keys := _find_referring_keys(resume, name)):
            keys_by_agent[other] = keys
    return keys_by_agent


def remove_references(base: OrgPath, other: str, name: str) -> str:
    """Remove an agent's name from the lists of another resume. Return the changed file, or "" for no change."""
    file = paths.resume_file(other)
    with edit_file(base, file) as resume_file:
        resume = parse(resume_file.raw, allow_bom=True)
        if not _find_referring_keys(resume, name):
            return ""
        text = resume_file.raw.decode("utf-8-sig")
        resume_file.publish(preserve_layout(_remove_from_text(text, name).encode(), _remove_from_lists(resume, name)))
    return file


def _find_name_lists(value: Any) -> dict[str, list[Any]]:
    """Return the lists of agent names in a resume, by key path."""
    resume: Json = value if isinstance(value, dict) else {}
    parts = (("permissions", _OF_PERMISSIONS), ("team", _OF_TEAM))
    return {
        f"{part}.{key}": resume[part][key]
        for part, keys in parts
        if isinstance(resume.get(part), dict)
        for key in keys
        if isinstance(resume[part].get(key), list)
    }


def _find_referring_keys(resume: Any, name: str) -> list[str]:
    return [
        path for path, items in _find_name_lists(resume).items() if any(_is_reference(item, name) for item in items)
    ]


def _is_reference(item: Any, name: str) -> bool:
    if isinstance(item, Mapping):
        return item.get("agent") == name
    return isinstance(item, str) and item.partition("/")[0] == name  # a memory is NAME/KEY


def _remove_from_lists(resume: Json, name: str) -> Json:
    changed = dict(resume)
    for key_path, items in _find_name_lists(resume).items():
        part, _, key = key_path.partition(".")
        changed[part] = {**changed[part], key: [item for item in items if not _is_reference(item, name)]}
    return changed


def _remove_from_text(text: str, name: str) -> str:
    """Remove a name from the lists in a resume's text, for simple list syntax only."""
    quoted_name = re.escape(dump_compact(name).decode())
    keys = "|".join((*_OF_PERMISSIONS, *_OF_TEAM))
    return re.sub(
        rf'"(?:{keys})"\s*:\s*\[[^\]]*\]',
        lambda match: re.sub(rf"{quoted_name}\s*,\s*|(?:,\s*)?{quoted_name}", "", match[0]),
        text,
    )
