"""What a folder holds, and how much it may: bytes, files, depth. Standard library only.

The walk opens one folder at a time below the one before, so that no depth is too deep for it and no link is
followed.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

DEPTH_LIMIT = 64
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Entry(NamedTuple):
    """Something in a folder: its path from there, how many folders deep it is, and its own status."""

    path: str
    depth: int
    status: os.stat_result


class FolderSize(NamedTuple):
    """What a folder holds: the larger of length and room on the disk, files and folders, folders deep, and
    folders that cannot be looked into."""

    size_bytes: int = 0
    files: int = 0
    depth: int = 0
    closed: int = 0

    def beyond(self, limits: FolderSize) -> str:
        """Return which limit is exceeded, in words; empty when none is."""
        if self.size_bytes > limits.size_bytes:
            return f"{self.size_bytes} bytes, at most {limits.size_bytes} are allowed"
        if self.files > limits.files:
            return f"{self.files} files and folders, at most {limits.files} are allowed"
        if self.depth > limits.depth:
            return f"folders {self.depth} deep, at most {limits.depth} are allowed"
        return "a folder that cannot be looked into" if self.closed > limits.closed else ""

    def or_more(self, other: FolderSize) -> FolderSize:
        """Return the larger of each number."""
        return FolderSize(*(max(pair) for pair in zip(self, other, strict=True)))


def measure(folder: str) -> FolderSize:
    """Return what a folder holds; nothing when it is not there.

    A folder that is moved while it is looked at ends the walk: the numbers are then too small. Raises
    `OSError` when the system refuses a look for a reason that says nothing about what is there.
    """
    usage = FolderSize()
    for entry in walk(folder):
        usage = add(usage, entry)
    return usage


def add(usage: FolderSize, entry: Entry) -> FolderSize:
    """Return the usage with one entry more; an entry without a status is a folder that stays closed."""
    status = entry.status
    if not status.st_mode:
        return usage._replace(closed=usage.closed + 1)
    is_folder = stat.S_ISDIR(status.st_mode)
    # A sparse file is longer than the room it takes, a short one takes more than its length.
    taken = max(status.st_blocks * 512, 0 if is_folder else status.st_size)
    depth = max(usage.depth, entry.depth) if is_folder else usage.depth
    return FolderSize(usage.size_bytes + taken, usage.files + 1, depth, usage.closed)


_CLOSED = os.stat_result((0,) * 10)


def walk(folder: str) -> Iterator[Entry]:
    """Yield everything below a folder. One that cannot be opened is yielded again, with a mode of 0.

    Raises `OSError` as `measure`.
    """
    try:
        here = os.open(folder, _FOLDER)
    except OSError as error:
        _require_no_folder(error)
        return
    above: list[tuple[int, int]] = []
    names: list[str] = []
    try:
        pending = [_Level(here)]
        yield from pending[-1].entries(names)
        while pending:
            if pending[-1].folders:
                name = pending[-1].folders.pop()
                try:
                    inner = os.open(name, _FOLDER, dir_fd=here)
                except PermissionError:
                    yield Entry("/".join([*names, name]), len(names) + 1, _CLOSED)
                    continue
                except OSError as error:
                    _require_no_folder(error)
                    continue
                above.append(_identity(here))
                os.close(here)
                here = inner
                names.append(name)
                pending.append(_Level(here))
                yield from pending[-1].entries(names)
            else:
                pending.pop()
                if not above:
                    return
                outer = os.open("..", _FOLDER, dir_fd=here)
                os.close(here)
                here = outer
                names.pop()
                if _identity(here) != above.pop():
                    return  # moved meanwhile
    finally:
        os.close(here)


class _Level:
    """An open folder on the way down, with the folders in it that are still to be opened."""

    def __init__(self, descriptor: int) -> None:
        self.folders: list[str] = []
        self._descriptor = descriptor

    def entries(self, names: list[str]) -> Iterator[Entry]:
        """Yield what is in the folder, and note the folders."""
        with os.scandir(self._descriptor) as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError as error:
                    _require_no_folder(error)
                    continue
                if stat.S_ISDIR(status.st_mode):
                    self.folders.append(entry.name)
                yield Entry("/".join([*names, entry.name]), len(names) + 1, status)


def _require_no_folder(error: OSError) -> None:
    """Raise the error unless it says that there is no folder, or none any more, to look into.

    With too many files open or a failing disk nobody knows, and a folder that counts as empty has no limit.
    """
    if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM):
        raise error


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
