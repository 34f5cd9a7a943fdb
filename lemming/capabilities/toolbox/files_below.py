"""All files below a folder that an agent may read, in one order, with limits: what searches go through."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from lemming.kernel.access.allowed_paths import Place, resolve
from lemming.kernel.access.grants import DEPTH_LIMIT
from lemming.kernel.access.open import NOTHING_REMOVED, Removed, read_text, scan_folder
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import ToolError

FILES_LIMIT = 5000
BYTES_LIMIT = 16 << 20


@dataclass
class Texts:
    """The text files of some places, as one turn sees them; `unread` counts files that are no text to read.

    `is_cut`: there were more than a search goes through.
    """

    staged: Mapping[str, bytes]
    removed: Removed = NOTHING_REMOVED
    unread: int = 0
    files: int = 0
    is_cut: bool = False
    closed: list[str] = field(default_factory=list)
    _room_bytes: int = BYTES_LIMIT
    _seen: set[str] = field(default_factory=set)

    def of(self, agent: Agent, base: Path, path: str, *, caller: str) -> Iterator[tuple[Place, str]]:
        """Yield each file below a folder with its text, or the file itself, sorted by path.

        An empty path stands for all folders that the agent may read; those that cannot be looked into are
        left out. No file comes twice. Raises `PermissionDenied` or `ToolError`.
        """
        if path:
            yield from self._below(resolve(agent, base, path, "read", caller=caller))
            return
        for grant in agent.permissions.file_access.allow_read:
            try:
                yield from self._below(resolve(agent, base, grant, "read", caller=caller))
            except ToolError as error:
                self.closed.append(error.message)

    def _below(self, place: Place) -> Iterator[tuple[Place, str]]:
        if place.key in self.staged or not self._is_folder(place):
            yield from self._file(place, read_text(place, self.staged, self.removed))
            return
        for file in _files_below(place, self.staged, self.removed):
            if self.files + self.unread >= FILES_LIMIT or self._room_bytes <= 0:
                self.is_cut = True
                return
            try:
                text = read_text(file, self.staged, self.removed)
            except ToolError:  # a link, a socket, an image, something large, or gone by now
                self.unread += 1
                continue
            yield from self._file(file, text)

    def _file(self, place: Place, text: str) -> Iterator[tuple[Place, str]]:
        if place.key not in self._seen:
            self._seen.add(place.key)
            self.files += 1
            self._room_bytes -= len(text)
            yield place, text

    def _is_folder(self, place: Place) -> bool:
        if place.is_granted_folder or any(key.startswith(f"{place.key}/") for key in self.staged):
            return True
        return os.path.isdir(place.root / place.relative)  # only which words are used; opening decides

    @property
    def count(self) -> str:
        """How many files were gone through, in words."""
        return f"{self.files} file{'' if self.files == 1 else 's'}"

    def remarks(self) -> list[str]:
        """Return what a reader of the result must know, one line each."""
        said = [f"[not searched: {why}]" for why in self.closed]
        if self.unread:
            said.append(f"[not searched: {self.unread} that are no text files, or too large]")
        if self.is_cut:
            said.append(f"[only the first {self.count} were searched: name a folder further down]")
        return said


def _files_below(place: Place, staged: Mapping[str, bytes], removed: Removed) -> Iterator[Place]:
    if len(place.parts) > DEPTH_LIMIT:
        return
    names = scan_folder(place, staged, removed)
    for name in sorted(names):
        if not name.isprintable():  # no call can name it
            continue
        inner = _inner(place, name)
        if names[name] == "/":
            yield from _files_below(inner, staged, removed)
        else:
            yield inner


def _inner(place: Place, name: str) -> Place:
    above = place.asked.path.rstrip("/").removeprefix("./")
    shown = name if above in ("", ".") and not place.asked.path.startswith("/") else f"{above}/{name}"
    relative = f"{place.relative}/{name}" if place.relative else name
    return replace(place, asked=replace(place.asked, path=shown), relative=relative, is_granted_folder=False)
