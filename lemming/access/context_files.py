"""The files that `context` of a resume names, where `*` in a name stands for whatever files are there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from lemming.access.grants import Place, resolve
from lemming.access.open import scan_folder
from lemming.base.errors import ToolError
from lemming.org.resume import Agent, ContextFile

MOST = 64
"""How many files one pattern may stand for."""


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


def with_context_found(agent: Agent, base: Path, staged: Mapping[str, bytes]) -> Agent:
    """Return the agent with the files that are there in the place of its patterns, by name.

    Names that begin with a dot, and folders, are left out. Raises `PermissionDenied`, and `ToolError` for a
    pattern whose folder is not there, or that fits too many.
    """
    if not any(map(is_pattern, agent.context)):
        return agent
    return replace(agent, context=[it for item in agent.context for it in _found(agent, base, item, staged)])


def _found(agent: Agent, base: Path, item: ContextFile, staged: Mapping[str, bytes]) -> list[ContextFile]:
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
            label=f"{item.label} {PurePosixPath(name).stem}" if item.label else name,
        )
        for name in names
    ]


def _before(file: str) -> str:
    head, slash, _ = file.rpartition("/")
    return head + slash
