"""Files that were read before are not read again until they change, which one `stat` tells.

A file's identity is its inode, size, mtime, ctime and device. Two edits can fall into one granule of the
file system's clock and leave all of them alike; so a file that had changed within a granule when it was read
is read again, and its bytes compared, until it has rested for that long. The same holds for a folder's names.
Some file systems give a change that follows a look a stamp of its own (Linux from 6.13: ext4, xfs, btrfs,
tmpfs); where that was seen, by `learn_stamps`, nothing need rest.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from lemming import fs
from lemming.errors import ConfigError

T = TypeVar("T")
Identity = tuple[int, int, int, int, int]

GRANULE_NS = 2_000_000_000  # FAT's, the coarsest there is
FINE_GRANULE_NS = 20_000_000  # twice the longest tick of a kernel's clock, where stamps tell microseconds
_MILLISECOND_NS = 1_000_000


_exact: set[int] = set()
"""Devices on which every change after a look shows, however soon it comes."""


class Reading(NamedTuple, Generic[T]):
    """What a file said: a value, or what is wrong with it; `digest` is the SHA-256 of its bytes.

    `is_settled`: an edit since would show in the file's identity.
    """

    outcome: T | ConfigError
    digest: str
    identity: Identity
    is_settled: bool


def is_current(reading: Reading[T], path: str, folder: int | None = None) -> bool:
    """Return whether a file certainly says what it said when it was read; `path` as in `identity_of`."""
    if not reading.is_settled:
        return False
    try:
        return reading.identity == identity_of(path, folder)
    except OSError:
        return False


def identity_of(path: str, folder: int | None = None) -> Identity:
    """Return what tells one state of a file or folder from another. Raises `OSError`.

    `path` may be relative to an open `folder`: of many files that is found sooner.
    """
    return identity_in(os.stat(path, dir_fd=folder, follow_symlinks=False))


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    """Open a folder, to look at what is in it. Raises `OSError`."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield folder
    finally:
        os.close(folder)


def identity_in(status: os.stat_result) -> Identity:
    """Return the identity that is in what `stat` said."""
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_dev


def learn_stamps(touch: Callable[[], os.stat_result]) -> None:
    """Find out whether a device's stamps tell every change; `touch` changes a file there and looks at it.

    A clock that ticks once a millisecond or more slowly cannot tell three changes within one apart. Where a
    file system refuses to stamp a file, nothing is learned.
    """
    began = time.perf_counter_ns()
    try:
        one, two, three = touch(), touch(), touch()
    except OSError:
        return
    took = time.perf_counter_ns() - began
    if one.st_ctime_ns < two.st_ctime_ns < three.st_ctime_ns and took < _MILLISECOND_NS:
        _exact.add(one.st_dev)
    else:
        _exact.discard(one.st_dev)


def is_exact(identity: Identity) -> bool:
    """Return whether any edit since the look that found it is certain to change the identity."""
    return identity[4] in _exact


def has_rested(identity: Identity, now: int) -> bool:
    """Return whether an edit after `now`, a `time.time_ns()`, is certain to change the identity.

    Stamps that are not whole milliseconds come from the kernel's own clock, which ticks at least every ten.
    """
    if is_exact(identity):
        return True
    changed = identity[3]
    granule = FINE_GRANULE_NS if changed % _MILLISECOND_NS else GRANULE_NS
    return now - max(identity[2], changed) > granule


def look(path: str, before: Reading[T] | None, read: Callable[[bytes], T], *, limit_bytes: int) -> Reading[T]:
    """Read a file; return the reading from before, the very same, if nothing is new.

    `read` makes the value of its bytes, or raises `ConfigError`. Raises `OSError` for a file that cannot be
    read, one that is no regular file among them.
    """
    now = time.time_ns()
    raw, status = fs.read_with_status(path, limit_bytes)
    identity = identity_in(status)
    is_settled = has_rested(identity, now) and identity_of(path) == identity
    digest = sha256(raw).hexdigest()
    if before is not None and before.digest == digest:
        is_as_before = (before.identity, before.is_settled) == (identity, is_settled)
        return before if is_as_before else Reading(before.outcome, digest, identity, is_settled)
    try:
        return Reading(read(raw), digest, identity, is_settled)
    except ConfigError as error:
        return Reading(error.with_traceback(None), digest, identity, is_settled)


def folders_in(path: str) -> list[tuple[str, bool]]:
    """Return the folders in a folder, sorted, without hidden ones; each with whether it is a link to one.

    There are none where there is no such folder. One behind a symbolic link is refused with `OSError`.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return []
    try:
        with os.scandir(descriptor) as entries:
            return sorted(
                (entry.name, entry.is_symlink())
                for entry in entries
                if not entry.name.startswith(".") and _is_folder(entry)
            )
    finally:
        os.close(descriptor)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a circle of links
        return False
