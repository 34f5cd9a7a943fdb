"""Walk all readable files below a folder, in a fixed order and with limits, for searches."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from lemming.kernel.access.agent_files import NOTHING_REMOVED, Removed, read_text, scan_folder
from lemming.kernel.access.allowed_paths import AllowedPath, resolve_path
from lemming.kernel.access.grant_syntax import DEPTH_LIMIT
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import ToolError

FILES_LIMIT = 5000
BYTES_LIMIT = 16 << 20


@dataclass
class TextFileWalker:
    """A walker over text files as one turn sees them. `unread`: files without text. `is_cut`: stopped at a limit."""

    staged: Mapping[str, bytes]
    removed: Removed = NOTHING_REMOVED
    unread: int = 0
    files: int = 0
    is_cut: bool = False
    errors: list[str] = field(default_factory=list)
    _room_bytes: int = BYTES_LIMIT
    _visited: set[str] = field(default_factory=set)

    def walk(self, agent: Agent, base: Path, path: str, *, caller: str) -> Iterator[tuple[AllowedPath, str]]:
        """Yield each file below a folder with its text, or the file itself, sorted by path.

        An empty path stands for all readable folders, without inaccessible folders. Each file comes once.
        Raises `PermissionDenied` or `ToolError`.
        """
        if path:
            yield from self._walk_folder(resolve_path(agent, base, path, "read", caller=caller))
            return
        for grant in agent.permissions.file_access.allow_read:
            try:
                yield from self._walk_folder(resolve_path(agent, base, grant, "read", caller=caller))
            except ToolError as error:
                self.errors.append(error.message)

    def _walk_folder(self, folder: AllowedPath) -> Iterator[tuple[AllowedPath, str]]:
        if folder.path_key in self.staged or not self._is_folder(folder):
            yield from self._count_file(folder, read_text(folder, self.staged, self.removed))
            return
        for file in _iter_files(folder, self.staged, self.removed):
            if self.files + self.unread >= FILES_LIMIT or self._room_bytes <= 0:
                self.is_cut = True
                return
            try:
                text = read_text(file, self.staged, self.removed)
            except ToolError:  # a link, a socket, an image, something large, or gone by now
                self.unread += 1
                continue
            yield from self._count_file(file, text)

    def _count_file(self, file: AllowedPath, text: str) -> Iterator[tuple[AllowedPath, str]]:
        if file.path_key not in self._visited:
            self._visited.add(file.path_key)
            self.files += 1
            self._room_bytes -= len(text)
            yield file, text

    def _is_folder(self, path: AllowedPath) -> bool:
        if path.is_granted_folder or any(key.startswith(f"{path.path_key}/") for key in self.staged):
            return True
        return os.path.isdir(path.root / path.relative)  # only which words are used; opening decides

    @property
    def describe_count(self) -> str:
        """The number of files walked, as text."""
        return f"{self.files} file{'' if self.files == 1 else 's'}"

    def get_remarks(self) -> list[str]:
        """Return remarks for the reader of a result, each on a line."""
        remarks = [f"[not searched: {reason}]" for reason in self.errors]
        if self.unread:
            remarks.append(f"[not searched: {self.unread} that are no text files, or too large]")
        if self.is_cut:
            remarks.append(f"[only the first {self.describe_count} were searched: name a folder further down]")
        return remarks


def _iter_files(folder: AllowedPath, staged: Mapping[str, bytes], removed: Removed) -> Iterator[AllowedPath]:
    if len(folder.parts) > DEPTH_LIMIT:
        return
    names = scan_folder(folder, staged, removed)
    for name in sorted(names):
        if not name.isprintable():  # no call can name it
            continue
        inner = _child_place(folder, name)
        if names[name] == "/":
            yield from _iter_files(inner, staged, removed)
        else:
            yield inner


def _child_place(folder: AllowedPath, name: str) -> AllowedPath:
    parent_path = folder.attempt.path.rstrip("/").removeprefix("./")
    display_path = (
        name if parent_path in ("", ".") and not folder.attempt.path.startswith("/") else f"{parent_path}/{name}"
    )
    relative = f"{folder.relative}/{name}" if folder.relative else name
    return replace(
        folder, attempt=replace(folder.attempt, path=display_path), relative=relative, is_granted_folder=False
    )
