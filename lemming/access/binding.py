"""Which files a call names, and what they hold: what leave for the call is bound to (docs/approvals.md).

A call that somebody let pass because of what a script says is not to run another script.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from lemming import paths
from lemming.access.grants import Place, kept_at, resolve
from lemming.access.open import file_digest_of
from lemming.agents import Agent
from lemming.errors import ToolError

NOT_THERE = ""
"""What a file holds that is not there, and that the call names as one."""
FILE_ARGUMENTS = frozenset({"path", "file", "to", "source", "target", "destination"})
MOST_FILES = 100
LONGEST_PATH = 4096
_BETWEEN_WORDS = re.compile(r"[\s;|&()<>=\"'`$]+")


def binds_of(
    agent: Agent,
    base: Path,
    tool_class: str,
    args: Mapping[str, Any],
    staged: Mapping[str, bytes],
    removed: Collection[str] = (),
) -> dict[str, str]:
    """Return the SHA-256 of each file that the arguments of a call name, by its place, as a turn sees it.

    `tool_class` "execute": any word of a text may name one.
    """
    binds: dict[str, str] = {}
    for place, is_file in _named(agent, base, tool_class, args):
        if len(binds) >= MOST_FILES:
            break
        try:
            binds[place.key] = file_digest_of(place, staged, removed)
        except ToolError:
            if is_file and place.relative:
                binds[place.key] = NOT_THERE
    return binds


def _named(agent: Agent, base: Path, tool_class: str, args: Any) -> Iterator[tuple[Place, bool]]:
    """Yield the places that arguments may name, and whether the argument is one that names a file."""
    workspace = paths.workspace_folder(agent.name)
    for key, text in _texts(args):
        if len(text) <= LONGEST_PATH and "\n" not in text:
            with suppress(ToolError):
                yield resolve(agent, base, text, "read", caller="leave"), key in FILE_ARGUMENTS
        if tool_class != "execute":
            continue
        for word in dict.fromkeys(_BETWEEN_WORDS.split(text[: LONGEST_PATH * 4])):
            inside = os.path.relpath(os.path.normpath(base / workspace / word), os.path.normpath(base))
            if word and len(word) <= LONGEST_PATH and not inside.startswith("..") and "\0" not in word:
                with suppress(ToolError):
                    yield kept_at(base, inside, caller="leave"), False


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield the texts of a JSON value, each with the key that it stands at."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(inner, name)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _texts(inner, key)
