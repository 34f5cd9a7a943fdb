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
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, TypeVar

from lemming.kernel.base.errors import ConfigError
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import Around
from lemming.kernel.files.refusals import require_about_one_file

T = TypeVar("T")
Identity = tuple[int, int, int, int, int]
identity_in: Callable[[os.stat_result], Identity] = attrgetter(
    "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns", "st_dev"
)
"""Return the identity that is in what `stat` said."""
Load = Callable[[str, int], tuple[bytes, os.stat_result]]
"""Read the bytes at a path that say something, at most so many, and the file's status before that."""
Look = tuple[str, Identity]
"""A file or folder and what it was when it was looked at: any change since shows."""

GRANULE_NS = 2_000_000_000  # FAT's, the coarsest there is
FINE_GRANULE_NS = 20_000_000  # twice the longest tick of a kernel's clock, where stamps tell microseconds
_MILLISECOND_NS = 1_000_000
LISTED_AGAIN_AFTER_S = 60.0
"""For so long nobody lists a folder again that changes here alone."""


_exact: set[int] = set()
"""Devices on which every change after a look shows, however soon it comes: whoever's files are on them."""


@dataclass(slots=True)  # looked into for every file of every turn, which a named tuple makes dearer
class Reading(Generic[T]):
    """What a file said: a value, or what is wrong with it; `digest` is the SHA-256 of the bytes that say it.

    `is_settled`: an edit since would show in the file's identity. `size`: in bytes, of what was read.
    """

    outcome: T | ConfigError
    digest: str
    identity: Identity
    is_settled: bool
    size: int = 0


def looks_at(files: Iterable[str], folder: int | None = None) -> list[Look] | None:
    """Look at files and folders before they are read; None when in doubt: one changed a moment ago.

    In the place of what is not there stands the folder above, which changes when it comes. Paths as in
    `identity_of`.
    """
    looks = []
    try:
        for path in files:
            now = time.time_ns()
            look = _look_at(path, folder)
            if not has_rested(look[1], now):
                return None
            looks.append(look)
    except OSError:
        return None
    return looks


def _look_at(path: str, folder: int | None) -> Look:
    try:
        return path, identity_of(path, folder)
    except FileNotFoundError:
        above = f"{os.path.dirname(path) or '.'}/."  # the folder itself, also behind a link
        look = above, identity_of(above, folder)
        with contextlib.suppress(FileNotFoundError):  # it may have come meanwhile
            look = path, identity_of(path, folder)
        return look


def are_as_before(looks: Iterable[Look], folder: int | None = None) -> bool:
    """Return whether nothing that was looked at has changed; paths as in `identity_of`."""
    lstat = os.lstat
    try:
        for path, identity in looks:  # an idle tick consists of this
            if identity != identity_in(lstat(path, dir_fd=folder)):
                return False
    except OSError:
        return False
    return True


def is_current(reading: Reading[T], path: str) -> bool:
    """Return whether a file certainly says what it said when it was read."""
    try:  # the prompt of every turn consists of entries that come by here
        return reading.is_settled and reading.identity == identity_in(os.lstat(path))
    except OSError:
        return False


def identity_of(path: str, folder: int | None = None) -> Identity:
    """Return what tells one state of a file or folder from another. Raises `OSError`.

    `path` may be relative to an open `folder`: of many files that is found sooner.
    """
    try:
        return identity_in(os.lstat(path, dir_fd=folder))
    except OSError as error:
        require_about_one_file(path, error)
        raise


def status_of(path: str, folder: int | None = None) -> os.stat_result:
    """Return what `lstat` says. Raises `OSError` about this file, and `DiskError` for any other refusal."""
    try:  # not `@looking`, which takes twice as long: every turn comes by here
        return os.lstat(path, dir_fd=folder)
    except OSError as error:
        require_about_one_file(path, error)
        raise


def is_there(path: str) -> bool:
    """Return whether anything stands at a path. Raises `DiskError` when the disk does not say."""
    try:
        status_of(path)
    except OSError:
        return False
    return True


def is_folder(path: str) -> bool:
    """Return whether a path leads to a folder. Raises `DiskError` when the disk does not say.

    `Path.is_dir` and its like take a look that is refused for one at nothing, from Python 3.14 on always.
    """
    return stat.S_ISDIR(_mode_at(path))


def is_file(path: str) -> bool:
    """Return whether a path leads to a regular file. Raises `DiskError` when the disk does not say."""
    return stat.S_ISREG(_mode_at(path))


def is_link(path: str) -> bool:
    """Return whether a link stands at a path. Raises `DiskError` when the disk does not say."""
    try:
        return stat.S_ISLNK(status_of(path).st_mode)
    except OSError:
        return False


def _mode_at(path: str) -> int:
    try:
        return os.stat(path).st_mode
    except OSError as error:
        require_about_one_file(path, error)
        return 0


@contextlib.contextmanager
def opened(path: str | Path) -> Iterator[int]:
    """Open a folder, to look at what is in it. Raises `OSError`, also for a link to one."""
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        require_about_one_file(path, error)
        raise
    try:
        yield folder
    finally:
        os.close(folder)


def learn_stamps(touch: Callable[[], os.stat_result]) -> None:
    """Find out whether a device's stamps tell every change; `touch` changes a file there and looks at it.

    A clock that ticks once a millisecond or more slowly cannot tell three changes within one apart. Whoever
    is kept from the processor meanwhile tries again. Where a file system refuses to stamp a file, nothing is
    learned.
    """
    try:
        for _ in range(3):
            began = time.perf_counter_ns()
            one, two, three = touch(), touch(), touch()
            if time.perf_counter_ns() - began < _MILLISECOND_NS:
                break
        else:
            return
    except OSError:
        return
    if one.st_ctime_ns < two.st_ctime_ns < three.st_ctime_ns:
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


def look(
    path: str,
    before: Reading[T] | None,
    decode: Callable[[bytes], T],
    *,
    limit_bytes: int,
    load: Load = fs.read_with_status,
) -> Reading[T]:
    """Read a file; return the reading from before, the very same, if nothing is new.

    `decode` makes the value of its bytes, or raises `ConfigError`; `load` reads them. Raises `OSError` for a
    file that cannot be read, one that is no regular file among them.
    """
    now = time.time_ns()
    raw, status = load(path, limit_bytes)
    identity = identity_in(status)
    # Another file may have been put in its place while it was read.
    is_settled = has_rested(identity, now) and identity_of(path) == identity
    digest = sha256(raw).hexdigest()
    if before is not None and before.digest == digest:
        is_as_before = (before.identity, before.is_settled) == (identity, is_settled)
        return before if is_as_before else Reading(before.outcome, digest, identity, is_settled, len(raw))
    try:
        return Reading(decode(raw), digest, identity, is_settled, len(raw))
    except ConfigError as error:
        return Reading(error.with_traceback(None), digest, identity, is_settled, len(raw))


@dataclass(slots=True)  # made for every turn, and a named tuple takes twice as long
class Listing:
    """The names in a folder, sorted, without hidden ones; none where there is no such folder.

    `is_settled`: a change since would show in the folder's identity. `is_changed_here`: this process has
    changed it since it was listed, at `listed_s` of `time.perf_counter()`.
    """

    identity: Identity
    is_settled: bool
    names: list[str]
    is_changed_here: bool = False
    listed_s: float = 0.0

    def after_change(self, around: Around) -> Listing | None:
        """Return the listing of a folder that this process changed and nobody else, `names` as they were.

        None when somebody did: the next look tells. A name that somebody adds in the very instant of the
        change is overlooked until anything else changes in the folder, or it was listed a minute ago.
        """
        before, after = around
        if self.identity != identity_in(before):
            return None
        identity = identity_in(after)
        return Listing(identity, self.is_settled and is_exact(identity), self.names, True, self.listed_s)

    def still_holds(self, identity: Identity) -> bool:
        """Return whether a folder that is found with this identity holds these names."""
        if not self.is_settled or self.identity != identity:
            return False
        return not self.is_changed_here or time.perf_counter() - self.listed_s < LISTED_AGAIN_AFTER_S


ABSENT = Listing((0, 0, 0, 0, 0), False, [])
"""What `list_again` gives where there is no folder."""


def list_again(path: str, before: Listing | None) -> Listing:
    """Return the names in a folder now: the very same value as before when nothing is new.

    Raises `OSError` for what is no folder; a link to one is none.
    """
    try:
        identity = identity_of(path)
        if before and before.still_holds(identity):
            return before
        now, listed_s = time.time_ns(), time.perf_counter()
        names = fs.list_names(path)
        is_settled = has_rested(identity, now) and identity_of(path) == identity
    except FileNotFoundError:
        return ABSENT
    return Listing(identity, is_settled, names, listed_s=listed_s)


def folders_in(folder: int) -> dict[str, bool]:
    """Return the folders in an open folder, without hidden ones; each with whether it is a link to one."""
    found = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                name = entry.name
                if name[0] == ".":
                    continue
                if entry.is_dir(follow_symlinks=False):
                    found[name] = False
                elif entry.is_symlink() and _leads_to_folder(entry):
                    found[name] = True
    except OSError as error:
        require_about_one_file("agents", error)
        raise
    return found


def _leads_to_folder(link: os.DirEntry[str]) -> bool:
    try:
        return link.is_dir()
    except OSError as error:  # a circle of links
        require_about_one_file(link.path, error)
        return False


# --- what was read of the files below one folder -------------------------------------------------
# It may be dropped at any moment, and is, beyond a number of bytes.


KEPT_BYTES = 32 << 20
_BYTES_MORE = 1 << 10  # what Python adds to a small value


class FileCache:
    """The values of files, by path relative to the folder; each file is always read by the same `decode`.

    Values are not to be changed: whoever asks next is given the same ones.
    """

    def __init__(self, base: Path) -> None:
        self._base = str(base)
        self._readings: dict[str, Reading[Any]] = {}
        self._kept_bytes = 0

    def value(
        self, file: str, decode: Callable[[bytes], T], *, limit_bytes: int, load: Load = fs.read_with_status
    ) -> T:
        """Return what a file says. Raises as `reading` does, and what `decode` raises."""
        outcome = self.reading(file, decode, limit_bytes=limit_bytes, load=load).outcome
        if isinstance(outcome, ConfigError):
            raise outcome.with_traceback(None)
        return outcome

    def reading(
        self, file: str, decode: Callable[[bytes], T], *, limit_bytes: int, load: Load = fs.read_with_status
    ) -> Reading[T]:
        """Return what a file says, or what is wrong with it; the very same value when nothing is new.

        `decode` makes the value of its bytes, or raises `ConfigError`; `load` reads those that say it.
        Raises `OSError` for a file that cannot be read, one that is no regular file among them.
        """
        path, known = f"{self._base}/{file}", self._readings.get(file)
        if known is not None and is_current(known, path):
            return known
        reading = look(path, known, decode, limit_bytes=limit_bytes, load=load)
        self._keep(file, reading)
        return reading

    def find_unchanged_digest(self, file: str) -> str:
        """Return the digest of a file that certainly holds what was read or written last; else empty."""
        known = self._readings.get(file)
        return known.digest if known is not None and is_current(known, f"{self._base}/{file}") else ""

    def wrote(
        self, file: str, value: object, raw: bytes, status: os.stat_result, *, digest: str = ""
    ) -> None:
        """Take note of what this process wrote: it is not read again where stamps tell of every change.

        `raw`: the bytes that say it. Of a file whose `digest` somebody asks for, it is given.
        """
        identity = identity_in(status)
        self._keep(file, Reading(value, digest, identity, is_exact(identity), len(raw)))

    def _keep(self, file: str, reading: Reading[Any]) -> None:
        if replaced := self._readings.pop(file, None):
            self._kept_bytes -= replaced.size + _BYTES_MORE
        self._readings[file] = reading
        self._kept_bytes += reading.size + _BYTES_MORE
        while self._kept_bytes > KEPT_BYTES and len(self._readings) > 1:
            self._kept_bytes -= self._readings.pop(next(iter(self._readings))).size + _BYTES_MORE
