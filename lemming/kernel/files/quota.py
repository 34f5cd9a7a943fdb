"""Contents of a folder and their limits: bytes, files, depth. Standard library only.

The walk opens one folder at a time relative to the previous folder, so any depth works and no link is
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


class FolderEntry(NamedTuple):
    """An item in a folder: the path relative to the walked folder, the depth in folders, and the status."""

    path: str
    depth: int
    status: os.stat_result


class FolderSize(NamedTuple):
    """Size of a folder: bytes (length or disk usage), number of files and folders, depth, unreadable folders."""

    size_bytes: int = 0
    files: int = 0
    depth: int = 0
    closed: int = 0

    def exceeded_limit(self, limits: FolderSize) -> str:
        """Return a description of the first exceeded limit, or an empty string."""
        if self.size_bytes > limits.size_bytes:
            return f"{self.size_bytes} bytes, at most {limits.size_bytes} are allowed"
        if self.files > limits.files:
            return f"{self.files} files and folders, at most {limits.files} are allowed"
        if self.depth > limits.depth:
            return f"folders {self.depth} deep, at most {limits.depth} are allowed"
        return "a folder that cannot be read" if self.closed > limits.closed else ""

    def maximum(self, other: FolderSize) -> FolderSize:
        """Return the maximum of each number."""
        return FolderSize(*(max(pair) for pair in zip(self, other, strict=True)))


def measure(folder: str) -> FolderSize:
    """Return the size of a folder; a missing folder has size zero.

    A folder moved during the walk ends the walk with numbers that are too small. Raises `OSError` if a
    listing fails for a reason unrelated to the folder's contents.
    """
    usage = FolderSize()
    for entry in walk(folder):
        usage = add_entry(usage, entry)
    return usage


def add_entry(usage: FolderSize, entry: FolderEntry) -> FolderSize:
    """Return the usage including one more entry. An entry without a status is an unreadable folder."""
    status = entry.status
    if not status.st_mode:
        return usage._replace(closed=usage.closed + 1)
    is_folder = stat.S_ISDIR(status.st_mode)
    # A sparse file is longer than the room it takes, a short one takes more than its length.
    disk_bytes = max(status.st_blocks * 512, 0 if is_folder else status.st_size)
    depth = max(usage.depth, entry.depth) if is_folder else usage.depth
    return FolderSize(usage.size_bytes + disk_bytes, usage.files + 1, depth, usage.closed)


_CLOSED = os.stat_result((0,) * 10)


def walk(folder: str) -> Iterator[FolderEntry]:
    """Yield all below a folder; a folder that cannot be opened again, with a mode of 0. Raises as `measure`."""
    try:
        current = os.open(folder, _FOLDER)
    except OSError as error:
        _require_no_folder(error)
        return
    parents: list[tuple[int, int]] = []
    names: list[str] = []
    try:
        pending: list[list[str]] = [[]]  # the subfolders still to be visited, by level
        yield from _scan(current, names, pending[-1])
        while pending:
            if pending[-1]:
                name = pending[-1].pop()
                try:
                    inner = os.open(name, _FOLDER, dir_fd=current)
                except PermissionError:
                    yield FolderEntry("/".join([*names, name]), len(names) + 1, _CLOSED)
                    continue
                except OSError as error:
                    _require_no_folder(error)
                    continue
                parents.append(_identity(current))
                os.close(current)
                current = inner
                names.append(name)
                pending.append([])
                yield from _scan(current, names, pending[-1])
            else:
                pending.pop()
                if not parents:
                    return
                outer = os.open("..", _FOLDER, dir_fd=current)
                os.close(current)
                current = outer
                names.pop()
                if _identity(current) != parents.pop():
                    return  # moved meanwhile
    finally:
        os.close(current)


def _scan(descriptor: int, names: list[str], folders: list[str]) -> Iterator[FolderEntry]:
    """Yield the contents of an open folder, and add the names of the subfolders to `folders`."""
    with os.scandir(descriptor) as entries:
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError as error:
                _require_no_folder(error)
                continue
            if stat.S_ISDIR(status.st_mode):
                folders.append(entry.name)
            yield FolderEntry("/".join([*names, entry.name]), len(names) + 1, status)


def _require_no_folder(error: OSError) -> None:
    """Raise the error unless it means that the folder does not exist or is not accessible.

    With too many open files or a failing disk the size is unknown, and a folder counted as empty has no
    limit.
    """
    if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM):
        raise error


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
