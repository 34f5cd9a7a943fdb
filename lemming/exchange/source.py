"""The folder that an importer reads, and what it makes of it: resumes, other files, models, remarks.

The folder is anybody's, so it is read within limits, and no link in it is followed.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from lemming.capabilities.skills.front_matter import NotFrontMatter, split, values_of
from lemming.kernel.base.errors import UsageError
from lemming.kernel.files import fs
from lemming.kernel.files.refusals import looking

TEXT_LIMIT_BYTES = 256 << 10
FILE_LIMIT_BYTES = 4 << 20
MOST_FILES = 2000
DEEPEST = 6
_SKIPPED = frozenset({"node_modules", "__pycache__"})


class Source:
    """A folder of another program. Paths are relative to it; what cannot be read becomes a remark."""

    def __init__(self, folder: Path, remarks: list[Remark]) -> None:
        self.folder, self._remarks = folder, remarks

    def names(self, folder: str = "") -> tuple[list[str], list[str]]:
        """Return the names of the folders in a folder, and of the files, sorted; links are left out."""
        folders, files = [], []
        for entry in self._entries(folder):
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            elif entry.is_file(follow_symlinks=False):
                files.append(entry.name)
            else:
                what = "a link" if entry.is_symlink() else "no file"
                self._remark(_joined(folder, entry.name), f"{what}: left out")
        return sorted(folders), sorted(files)

    def below(self, folder: str) -> list[str]:
        """Return the paths of the files below a folder, from it, sorted; none of hidden folders."""
        found, waiting = list[str](), [("", 0)]
        while waiting and len(found) <= MOST_FILES:
            here, depth = waiting.pop()
            folders, files = self.names(_joined(folder, here))
            found += [_joined(here, name) for name in files]
            inner = [name for name in folders if not name.startswith(".") and name not in _SKIPPED]
            waiting += [(_joined(here, name), depth + 1) for name in inner if depth < DEEPEST]
        if len(found) > MOST_FILES:
            self._remark(folder or ".", f"more than {MOST_FILES} files; the rest is left out")
        return sorted(found)[:MOST_FILES]

    def raw(self, path: str, limit_bytes: int = FILE_LIMIT_BYTES) -> bytes | None:
        """Return a file's bytes; None when it is not there, or cannot be taken, which is told."""
        if self._lies_behind_a_link(path):
            return None
        try:
            raw = fs.read_bytes(self.folder / path, limit_bytes)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._remark(path, f"cannot be read: {error.strerror}")
            return None
        if len(raw) > limit_bytes:
            self._remark(path, f"has more than {limit_bytes} bytes: left out")
            return None
        return raw

    def text(self, path: str) -> str | None:
        """Return a file's text; None as `raw`, and for what is no UTF-8."""
        raw = self.raw(path, TEXT_LIMIT_BYTES)
        if raw is None:
            return None
        try:
            return raw.decode("utf-8-sig")
        except UnicodeDecodeError:
            self._remark(path, "is not UTF-8 text: left out")
            return None

    def document(self, path: str) -> tuple[dict[str, Any], str] | None:
        """Return what the first block of a Markdown file says, and its text; None as `text`."""
        text = self.text(path)
        if text is None:
            return None
        try:
            header, body = split(text)
            return ({} if header is None else values_of(header)), body.strip()
        except NotFrontMatter as error:
            where = f"line {error.line}: " if error.line else ""
            self._remark(path, f"{where}{error}: left out")
            return None

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        if self._lies_behind_a_link(folder):
            return []
        try:
            return _entries_of(self.folder / folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self._remark(folder or ".", f"cannot be listed: {error.strerror}")
            return []

    def _lies_behind_a_link(self, path: str) -> bool:
        """Return whether the path, or a folder on the way, is a link; the person is told once."""
        parts = path.split("/") if path else []
        for depth in range(len(parts)):
            here = "/".join(parts[: depth + 1])
            if (self.folder / here).is_symlink():
                self._remark(here, "a link: left out")
                return True
        return False

    def _remark(self, path: str, message: str) -> None:
        remark = Remark(path, message)
        if remark not in self._remarks:
            self._remarks.append(remark)


@looking
def _entries_of(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return [entry for entry in entries if entry.name.isprintable()]


def open_source(folder: Path, remarks: list[Remark]) -> Source:
    """Return the folder a person named; raise `UsageError` when there is none."""
    found = folder.expanduser().absolute()
    if not found.is_dir():
        raise UsageError("there is no such folder", where=str(found), hint="name the folder to import from")
    return Source(found, remarks)


def _joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder and name else folder or name


# --- what an importer has made of it -------------------------------------------------------------


class Remark(NamedTuple):
    """Something a person should know: about which file of the source, and what."""

    file: str
    message: str


@dataclass(frozen=True)
class Destination:
    """What the importers must know of the organisation: its tools, its people, its guide if it has one.

    `is_in_place`: the source is the organisation's own folder, so that what can be read where it lies is.
    """

    tools: Collection[str]
    people: tuple[str, ...]
    is_in_place: bool = False


@dataclass
class Taken:
    """What was made of a source. `files` are written as they are, by path in the organisation.

    `optional` are files that are left out where others stand already: guides and skills of everybody.
    """

    resumes: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    optional: dict[str, bytes] = field(default_factory=dict)
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    remarks: list[Remark] = field(default_factory=list)

    def remark(self, file: str, message: str) -> None:
        """Take note of something for the person."""
        self.remarks.append(Remark(file, message))
