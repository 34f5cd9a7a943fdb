"""Reading from open files. Nothing in this module changes the disk."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from io import BufferedReader

from lemming.kernel.files.disk_errors import require_about_one_file

MAX_LINE_BYTES = 64 << 20
"""Longer than any line of the engine; a longer line is not read to its end."""

MAX_FOLDER_DEPTH = 100

StatusPair = tuple[os.stat_result, os.stat_result]
"""Status of a folder before and after a change of its names."""


def require_regular(descriptor: int, path: str) -> os.stat_result:
    """Return a regular file's status; raise `OSError` that names `path` for anything else."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)
    return status


def walk(top: str | os.PathLike[str]) -> Iterator[tuple[str, list[str], list[os.DirEntry[str]]]]:
    """Yield the same values as `os.walk`, with directory entries for files and without a recursion limit.

    Folders nested deeper than `MAX_FOLDER_DEPTH` are skipped: no person or tool makes any. Unreadable folders
    are skipped too. Raises `DiskError` if the disk fails to list a folder.
    """
    pending = [(os.fspath(top), 0)]
    while pending:
        folder, depth = pending.pop()
        folder_names: list[str] = []
        links: set[str] = set()
        files: list[os.DirEntry[str]] = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir():
                        folder_names.append(entry.name)
                        if entry.is_symlink():
                            links.add(entry.name)
                    else:
                        files.append(entry)
        except OSError as error:
            require_about_one_file(folder, error)
            continue
        yield folder, folder_names, files
        if depth < MAX_FOLDER_DEPTH:
            # The caller may have removed names from the list, as with `os.walk`.
            subfolders = (name for name in reversed(folder_names) if name not in links)
            pending += [(f"{folder}/{name}", depth + 1) for name in subfolders]


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a regular file for reading. Raise `OSError` for a link, a pipe (without blocking) or a folder."""
    # O_NONBLOCK: opening a pipe that stands under this name would wait for its writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        require_regular(descriptor, os.fspath(path))
    except BaseException:
        os.close(descriptor)
        raise
    return open(descriptor, "rb")


def read_limited(descriptor: int, count: int, size: int) -> bytes:
    """Return at most `count` bytes; a file of exactly `size` bytes takes one system call."""
    content = os.read(descriptor, min(count, size + 1))
    if len(content) == size:
        return content
    chunks = [content]
    while (count := count - len(chunks[-1])) > 0 and chunks[-1]:
        chunks.append(os.read(descriptor, min(count, 1 << 20)))
    return b"".join(chunks)


def last_lines(descriptor: int, size: int, block_bytes: int, lines: int) -> bytes:
    """Return the end of a file of `size` bytes: whole lines, at least `lines` if the file has enough lines.

    Raises `OSError` for a line longer than `MAX_LINE_BYTES`, which the engine never writes.
    """
    start = max(0, size - block_bytes)
    tail = os.pread(descriptor, size - start, start)
    while start and tail.count(b"\n") <= lines:
        if len(tail) >= MAX_LINE_BYTES:
            raise OSError(errno.EFBIG, f"its last line is longer than {MAX_LINE_BYTES >> 20} MiB")
        step = min(start, len(tail))
        start -= step
        tail = os.pread(descriptor, step, start) + tail
    return tail[tail.find(b"\n") + 1 :] if start else tail
