"""Append an item to a list in a resume or in `config/org.json`, without changing other values."""

from __future__ import annotations

from typing import Any

from lemming.kernel.agents import decode_resume
from lemming.kernel.base import paths
from lemming.kernel.base.jsontext import dump_pretty, parse
from lemming.kernel.org.changing import edit_file
from lemming.kernel.org.config import ORG_FILE
from lemming.kernel.org.organisation import OrgPath


def append_to_resume(base: OrgPath, agent: str, keys: tuple[str, ...], item: str) -> str:
    """Append an item to a list of a resume, unless the list contains the item or `*`.

    Returns: the changed file, or an empty string for no change.

    Raises: ConfigError if the resulting resume would be invalid.
    """
    return _insert_item(base, agent, paths.resume_file(agent), keys, item)


def append_to_settings(base: OrgPath, keys: tuple[str, ...], item: str) -> str:
    """Append an item to a list of `config/org.json`, as `append_to_resume` does."""
    return _insert_item(base, "", ORG_FILE, keys, item)


def _insert_item(base: OrgPath, agent: str, file: str, keys: tuple[str, ...], item: str) -> str:
    with edit_file(base, file) as locked_file:
        document: dict[str, Any] = parse(locked_file.raw, allow_bom=True)
        parent = document
        for key in keys[:-1]:
            parent[key] = parent = dict(parent.get(key) or {})
        items = parent.get(keys[-1]) or []
        if item in items or "*" in items:
            return ""
        parent[keys[-1]] = [*items, item]
        content = dump_pretty(document)
        if agent:
            decode_resume(agent, content)
        locked_file.publish(content)
    return file
