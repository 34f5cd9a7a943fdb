"""Resumes that name an agent which is gone: its readers, and the teams that it was in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lemming.kernel.agents import RESUME_LIMIT_BYTES, agent_folders
from lemming.kernel.base import paths
from lemming.kernel.base.jsontext import JsonProblem, as_laid_out, compact, parse
from lemming.kernel.files import fs
from lemming.kernel.org.changing import changing_file
from lemming.kernel.org.organisation import OrgPath

Json = dict[str, Any]
_OF_PERMISSIONS, _OF_TEAM = ("read_outboxes", "read_memories"), ("ask", "hand_to")


def find_namers(base: OrgPath, name: str) -> dict[str, list[str]]:
    """Return the agents whose resumes name an agent in a list, each with the keys of these lists."""
    found: dict[str, list[str]] = {}
    for other in filter(paths.AGENT_NAME.match, agent_folders(base)):
        try:
            plain = parse(fs.read_bytes(base / paths.resume_file(other), RESUME_LIMIT_BYTES), allow_bom=True)
        except (JsonProblem, OSError):  # `validate` says what is wrong with it
            continue
        if other != name and (keys := _keys_that_name(plain, name)):
            found[other] = keys
    return found


def remove_name(base: OrgPath, other: str, name: str) -> str:
    """Take an agent's name out of the lists of another one's resume; return the file, or nothing."""
    file = paths.resume_file(other)
    with changing_file(base, file) as opened:
        plain = parse(opened.raw, allow_bom=True)
        if not _keys_that_name(plain, name):
            return ""
        text = opened.raw.decode("utf-8-sig")
        opened.publish(as_laid_out(_without_in_text(text, name).encode(), _without(plain, name)))
    return file


def _find_name_lists(plain: Any) -> dict[str, list[Any]]:
    """Return the lists of a resume that name agents, by their place."""
    said: Json = plain if isinstance(plain, dict) else {}
    parts = (("permissions", _OF_PERMISSIONS), ("team", _OF_TEAM))
    return {
        f"{part}.{key}": said[part][key]
        for part, keys in parts
        if isinstance(said.get(part), dict)
        for key in keys
        if isinstance(said[part].get(key), list)
    }


def _keys_that_name(plain: Any, name: str) -> list[str]:
    return [
        place
        for place, listed in _find_name_lists(plain).items()
        if any(_is_named(it, name) for it in listed)
    ]


def _is_named(item: Any, name: str) -> bool:
    if isinstance(item, Mapping):
        return item.get("agent") == name
    return isinstance(item, str) and item.partition("/")[0] == name  # a memory is NAME/KEY


def _without(plain: Json, name: str) -> Json:
    changed = dict(plain)
    for place, listed in _find_name_lists(plain).items():
        part, _, key = place.partition(".")
        changed[part] = {**changed[part], key: [it for it in listed if not _is_named(it, name)]}
    return changed


def _without_in_text(text: str, name: str) -> str:
    """Return the text of a resume without the name in its lists, where that is so plain that it can be."""
    word = re.escape(compact(name).decode())
    keys = "|".join((*_OF_PERMISSIONS, *_OF_TEAM))
    return re.sub(
        rf'"(?:{keys})"\s*:\s*\[[^\]]*\]',
        lambda found: re.sub(rf"{word}\s*,\s*|(?:,\s*)?{word}", "", found[0]),
        text,
    )
