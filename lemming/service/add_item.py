"""One more item in a list of a resume or of `config/org.json`, which stay as they were but for that."""

from __future__ import annotations

from typing import Any

from lemming.kernel.agents import decode_resume
from lemming.kernel.base import paths
from lemming.kernel.base.jsontext import parse, pretty
from lemming.kernel.org.changing import changing_file
from lemming.kernel.org.config import ORG_FILE
from lemming.kernel.org.organisation import OrgPath


def add_to_resume(base: OrgPath, agent: str, keys: tuple[str, ...], item: str) -> str:
    """Add an item to a list of a resume, unless it is there or `*` is; return the file, empty for no change.

    Raises `ConfigError` where the resume would be none.
    """
    return _add(base, agent, paths.resume_file(agent), keys, item)


def add_to_settings(base: OrgPath, keys: tuple[str, ...], item: str) -> str:
    """Do the same for a list of `config/org.json`."""
    return _add(base, "", ORG_FILE, keys, item)


def _add(base: OrgPath, agent: str, file: str, keys: tuple[str, ...], item: str) -> str:
    with changing_file(base, file) as opened:
        plain: dict[str, Any] = parse(opened.raw, allow_bom=True)
        inside = plain
        for key in keys[:-1]:
            inside[key] = inside = dict(inside.get(key) or {})
        before = inside.get(keys[-1]) or []
        if item in before or "*" in before:
            return ""
        inside[keys[-1]] = [*before, item]
        content = pretty(plain)
        if agent:
            decode_resume(agent, content)
        opened.publish(content)
    return file
