"""Reading files and folders, for `lemming.files.fs`: a link is refused, and so is what is no file."""

from __future__ import annotations

import os
from bisect import bisect_left

from lemming.files.descriptors import last_lines, read_up_to, require_regular
from lemming.files.refusals import looking

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read_bytes(path: str | os.PathLike[str], limit_bytes: int) -> bytes:
    """Return a regular file's bytes, at most `limit_bytes` + 1 of them (so the caller sees the excess).

    Raises `OSError` about this file: not found, a link, a folder, a pipe. Any other refusal: `DiskError`.
    """
    return read_with_status(path, limit_bytes)[0]


@looking
def read_with_status(path: str | os.PathLike[str], limit_bytes: int) -> tuple[bytes, os.stat_result]:
    """Return a file's bytes as `read_bytes` does, and its status just before they were read."""
    descriptor = os.open(path, _READ)
    try:
        status = require_regular(descriptor, os.fspath(path))
        return read_up_to(descriptor, limit_bytes + 1, status.st_size), status
    finally:
        os.close(descriptor)


def read_tail(path: str | os.PathLike[str], block_bytes: int, lines: int) -> bytes:
    """Return the end of a file, whole lines, at least `lines` of them where there are so many."""
    return read_tail_with_status(path, block_bytes, lines)[0]


@looking
def read_tail_with_status(
    path: str | os.PathLike[str], block_bytes: int, lines: int
) -> tuple[bytes, os.stat_result]:
    """Return the end of a file as `read_tail` does, and the file's status just before it was read."""
    descriptor = os.open(path, _READ)
    try:
        status = require_regular(descriptor, os.fspath(path))
        return last_lines(descriptor, status.st_size, block_bytes, lines), status
    finally:
        os.close(descriptor)


@looking
def list_names(path: str | os.PathLike[str]) -> list[str]:
    """Return a folder's names, sorted, without hidden ones; none when it is not there. A link is refused."""
    try:
        descriptor = os.open(path, _FOLDER)
    except FileNotFoundError:
        return []
    try:
        names = os.listdir(descriptor)
    finally:
        os.close(descriptor)
    names.sort()
    del names[bisect_left(names, ".") : bisect_left(names, "/")]  # "/" is the next character
    return names
