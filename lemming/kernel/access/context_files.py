"""What an agent's prompts show of files: those that `context` names, and memories of others that are granted.

`*` in a name stands for whatever is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from lemming.kernel.access.allowed_paths import Place, kept_at, resolve
from lemming.kernel.access.grants import MEMORY_GRANT
from lemming.kernel.access.open import read_raw, read_text, scan_folder
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ToolError
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.memory import decode_memory, list_memories
from lemming.kernel.org.resume import Agent, ContextFile

MOST = 64
"""How many files one pattern may stand for."""
KEPT_BY_TOOLS = ("state.", "cache.")
"""What a pattern does not stand for: memories that functions keep for themselves."""
_FILE_NAME = re.compile(r"[\w-]+(?:\.[\w-]+)+")
"""A name that is no agent's, and no word of the engine's in a prompt."""


@dataclass(frozen=True, kw_only=True)
class MemoryOfAnother(ContextFile):
    """A memory of another agent that a grant shows."""

    owner: str
    key: str


def is_pattern(item: ContextFile) -> bool:
    """Return whether the name of a context file stands for whatever files are there."""
    return "*" in item.file


def read_for(item: ContextFile) -> str:
    """Return the path that is read for a context file: itself, of a pattern the folder it looks into."""
    return str(PurePosixPath(item.file).parent) if is_pattern(item) else item.file


def folder_looked_into(agent: Agent, base: Path, item: ContextFile) -> Place:
    """Return the folder that a pattern looks into. Raises `PermissionDenied` or `ToolError`."""
    folder = read_for(item)
    place = resolve(agent, base, folder, "read", caller="context")
    if "*" in folder:
        raise ToolError(
            f'context: "{item.file}" has * in the name of a folder',
            hint="only the last part may have it, as in ./shared/tickets/*.txt",
        )
    return place


def place_of_item(agent: Agent, base: Path, item: ContextFile) -> Place:
    """Return where something lies that prompts show. Raises `PermissionDenied`, and `ToolError`."""
    if isinstance(item, MemoryOfAnother):  # by a grant of its own
        return kept_at(base, item.file, caller="permissions.read_memories")
    return resolve(agent, base, item.file, "read", caller="context")


def text_of_item(agent: Agent, base: Path, item: ContextFile, staged: Mapping[str, bytes]) -> str:
    """Return the text of something that prompts show, as this turn sees it: of a memory its value.

    Raises `PermissionDenied`, `ToolError`, and `CorruptState` for a memory that a person broke.
    """
    place = place_of_item(agent, base, item)
    if not isinstance(item, MemoryOfAnother):
        return read_text(place, staged)
    value = decode_memory(read_raw(place, staged), item.file)
    return value if isinstance(value, str) else to_line(value)


def folders_of_memories(agent: Agent) -> Iterator[str]:
    """Yield the folders in which memories lie that an agent is granted."""
    owners = (
        found["owner"] for it in agent.permissions.read_memories if (found := MEMORY_GRANT.fullmatch(it))
    )
    yield from (paths.memory_folder(owner) for owner in dict.fromkeys(owners) if owner != agent.name)


def granted_memories(agent: Agent, base: Path, staged: Mapping[str, bytes]) -> Iterator[MemoryOfAnother]:
    """Yield the memories of others that are there, grant by grant, by key."""
    for grant in agent.permissions.read_memories:
        found = MEMORY_GRANT.fullmatch(grant)
        if found is None or (owner := found["owner"]) == agent.name:
            continue
        folder = f"{paths.memory_folder(owner)}/"
        written = {it[len(folder) : -len(".json")] for it in staged if it.startswith(folder)}
        is_one, pattern = "*" not in grant, found["key"]
        for key in sorted(written.union(list_memories(base, owner))):
            if fnmatchcase(key, pattern) and (is_one or not key.startswith(KEPT_BY_TOOLS)):
                label, file = f"memory {key} of {owner}", paths.memory_file(owner, key)
                yield MemoryOfAnother(file=file, label=label, owner=owner, key=key)


def with_context_found(agent: Agent, base: Path, staged: Mapping[str, bytes]) -> Agent:
    """Return the agent with the files that are there in the place of its patterns, by name, and memories.

    Names that begin with a dot, and folders, are left out. Raises `PermissionDenied`, and `ToolError` for a
    pattern whose folder is not there, or that fits too many.
    """
    if not (agent.permissions.read_memories or any(map(is_pattern, agent.context))):
        return agent
    files = [it for item in agent.context for it in _matching_files(agent, base, item, staged)]
    memories = dict.fromkeys(granted_memories(agent, base, staged))
    if len(memories) > MOST:
        raise ToolError(
            f"permissions.read_memories fits {len(memories)} memories; at most {MOST} are put into a prompt",
            hint="name those that are needed",
        )
    return replace(agent, context=[*files, *memories])


def _matching_files(
    agent: Agent, base: Path, item: ContextFile, staged: Mapping[str, bytes]
) -> list[ContextFile]:
    if not is_pattern(item):
        return [item]
    there = scan_folder(folder_looked_into(agent, base, item), staged)
    pattern = PurePosixPath(item.file)
    names = sorted(
        name
        for name, mark in there.items()
        if mark != "/" and not name.startswith(".") and fnmatchcase(name, pattern.name)
    )
    if len(names) > MOST:
        raise ToolError(
            f'context: "{item.file}" fits {len(names)} files; at most {MOST} are put into a prompt',
            hint="move away those that are done with, or give the agent file_search",
        )
    return [
        replace(
            item,
            file=str(pattern.with_name(name)) if pattern.is_absolute() else f"{_before(item.file)}{name}",
            label=f"{item.label} {PurePosixPath(name).stem}" if item.label else _label_of(name),
        )
        for name in names
    ]


def _label_of(name: str) -> str:
    """Return the label of a file that was found: whoever wrote it may have called it "mira asks".

    >>> _label_of("lamp.txt"), _label_of("mira asks")
    ('lamp.txt', 'file mira asks')
    """
    return name if _FILE_NAME.fullmatch(name) else f"file {name}"


def _before(file: str) -> str:
    head, slash, _ = file.rpartition("/")
    return head + slash
