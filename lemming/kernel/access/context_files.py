"""Files in an agent's prompts: those of `context` (`*` matches any), and granted memories of other agents."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from lemming.kernel.access.agent_files import read_raw, read_text, scan_folder
from lemming.kernel.access.allowed_paths import MEMORY_GRANT, AllowedPath, resolve_org_path, resolve_path
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ToolError
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.memory import decode_memory, list_memories
from lemming.kernel.org.resume import Agent, ContextFile

MAX_MATCHES = 64
"""Maximum number of files for one pattern."""
TOOL_STATE_PREFIXES = ("state.", "cache.")
"""Memories that functions keep for themselves: no pattern matches them."""
_FILE_NAME = re.compile(r"[\w-]+(?:\.[\w-]+)+")
"""A name that cannot be taken for an agent, or for words of the engine in a prompt."""


@dataclass(frozen=True, kw_only=True)
class ForeignMemory(ContextFile):
    """Another agent's memory, shown by a grant."""

    owner: str
    key: str


def is_pattern(item: ContextFile) -> bool:
    """Return True if the name of a context file is a pattern."""
    return "*" in item.file


def path_to_read(item: ContextFile) -> str:
    """Return the path to read for a context file: the path itself, or the folder of a pattern."""
    return str(PurePosixPath(item.file).parent) if is_pattern(item) else item.file


def resolve_pattern_folder(agent: Agent, base: Path, item: ContextFile) -> AllowedPath:
    """Return the folder searched by a pattern. Raises `PermissionDenied` or `ToolError`."""
    folder = path_to_read(item)
    allowed = resolve_path(agent, base, folder, "read", caller="context")
    if "*" in folder:
        raise ToolError(
            f'context: "{item.file}" must not have * in the name of a folder',
            hint="use * in the last part only, as in ./shared/tickets/*.txt",
        )
    return allowed


def resolve_item(agent: Agent, base: Path, item: ContextFile) -> AllowedPath:
    """Return the allowed path of a context file. Raises `PermissionDenied` and `ToolError`."""
    if isinstance(item, ForeignMemory):  # granted by `read_memories`
        return resolve_org_path(base, item.file, caller="permissions.read_memories")
    return resolve_path(agent, base, item.file, "read", caller="context")


def load_item_text(agent: Agent, base: Path, item: ContextFile, staged: Mapping[str, bytes]) -> str:
    """Return the text of a context file as this turn sees it; for a memory, the value.

    Raises `PermissionDenied`, `ToolError`, and `CorruptState` for a memory damaged by a person.
    """
    allowed = resolve_item(agent, base, item)
    if not isinstance(item, ForeignMemory):
        return read_text(allowed, staged)
    value = decode_memory(read_raw(allowed, staged), item.file)
    return value if isinstance(value, str) else to_line(value)


def granted_memory_folders(agent: Agent) -> Iterator[str]:
    """Yield the folders of memories granted to an agent."""
    owners = (match["owner"] for grant in agent.permissions.read_memories if (match := MEMORY_GRANT.fullmatch(grant)))
    yield from (paths.memory_folder(owner) for owner in dict.fromkeys(owners) if owner != agent.name)


def granted_memories(agent: Agent, base: Path, staged: Mapping[str, bytes]) -> Iterator[ForeignMemory]:
    """Yield the existing memories of other agents granted to the agent, grant by grant, by key."""
    for grant in agent.permissions.read_memories:
        match = MEMORY_GRANT.fullmatch(grant)
        if match is None or (owner := match["owner"]) == agent.name:
            continue
        folder = f"{paths.memory_folder(owner)}/"
        staged_keys = {path[len(folder) : -len(".json")] for path in staged if path.startswith(folder)}
        is_single, pattern = "*" not in grant, match["key"]
        for key in sorted(staged_keys.union(list_memories(base, owner))):
            if fnmatchcase(key, pattern) and (is_single or not key.startswith(TOOL_STATE_PREFIXES)):
                label, file = f"memory {key} of {owner}", paths.memory_file(owner, key)
                yield ForeignMemory(file=file, label=label, owner=owner, key=key)


def expand_context(agent: Agent, base: Path, staged: Mapping[str, bytes]) -> Agent:
    """Return the agent with patterns replaced by matching files, in name order, and with granted memories.

    Names with a leading dot, and folders, are left out. Raises `PermissionDenied`, and `ToolError` for a
    pattern with a missing folder or too many matches.
    """
    if not (agent.permissions.read_memories or any(map(is_pattern, agent.context))):
        return agent
    files = [context_file for item in agent.context for context_file in matching_files(agent, base, item, staged)]
    memories = dict.fromkeys(granted_memories(agent, base, staged))
    if len(memories) > MAX_MATCHES:
        raise ToolError(
            f"permissions.read_memories matches {len(memories)} memories; at most {MAX_MATCHES} fit into a prompt",
            hint="name only the required memories",
        )
    return replace(agent, context=[*files, *memories])


def matching_files(agent: Agent, base: Path, item: ContextFile, staged: Mapping[str, bytes]) -> list[ContextFile]:
    """Return the files of a pattern, or the item itself. Raises as `expand_context` does."""
    if not is_pattern(item):
        return [item]
    folder_names = scan_folder(resolve_pattern_folder(agent, base, item), staged)
    pattern = PurePosixPath(item.file)
    names = sorted(
        name
        for name, type_mark in folder_names.items()
        if type_mark != "/" and not name.startswith(".") and fnmatchcase(name, pattern.name)
    )
    if len(names) > MAX_MATCHES:
        raise ToolError(
            f'context: "{item.file}" matches {len(names)} files; at most {MAX_MATCHES} fit into a prompt',
            hint="move files away that are done, or give the agent file_search",
        )
    return [
        replace(
            item,
            file=str(pattern.with_name(name)) if pattern.is_absolute() else f"{_folder_prefix(item.file)}{name}",
            label=f"{item.label} {PurePosixPath(name).stem}" if item.label else _make_label(name),
        )
        for name in names
    ]


def _make_label(name: str) -> str:
    """Return the label of a matched file. Its author may have chosen a misleading name such as "mira asks".

    >>> _make_label("lamp.txt"), _make_label("mira asks")
    ('lamp.txt', 'file mira asks')
    """
    return name if _FILE_NAME.fullmatch(name) else f"file {name}"


def _folder_prefix(file: str) -> str:
    head, slash, _ = file.rpartition("/")
    return head + slash
