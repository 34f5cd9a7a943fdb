"""Cached reads of files: a file is read again only after a change, which one `stat` detects.

A file's identity is its inode, size, mtime, ctime and device. Two edits can fall into one granule of the file
system's clock and leave all of them unchanged. A file modified within a granule of its read is therefore read
again, and the bytes compared, until its mtime is stable. The same holds for a folder's names. Some file
systems assign each change after a read its own timestamp (Linux from 6.13: ext4, xfs, btrfs, tmpfs); if
`probe_mtime_resolution` has detected this, no waiting is needed.
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
from lemming.kernel.files.disk_errors import require_about_one_file

T = TypeVar("T")
Identity = tuple[int, int, int, int, int]
to_identity: Callable[[os.stat_result], Identity] = attrgetter(
    "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns", "st_dev"
)
"""Return the identity in a file's status."""
Load = Callable[[str, int], tuple[bytes, os.stat_result]]
"""Read the bytes at a path that say something, at most so many, and the file's status before that."""
PathState = tuple[str, Identity]
"""A file or folder with its state when read; every later change shows."""

GRANULE_NS = 2_000_000_000  # FAT's, the coarsest
FINE_GRANULE_NS = 20_000_000  # twice the longest tick of a kernel's clock, where stamps tell microseconds
_MILLISECOND_NS = 1_000_000


_exact_devices: set[int] = set()
"""Devices on which every change after a look shows, however soon it comes: whoever's files are on them."""


@dataclass(slots=True)  # read for every file of every turn: a named tuple would be slower
class FileReading(Generic[T]):
    """A file as last read: the value or the error. `digest`: SHA-256 of the bytes behind the value.

    `is_settled`: True if a later edit would change the file's identity. `size`: number of bytes read.
    """

    outcome: T | ConfigError
    digest: str
    identity: Identity
    is_settled: bool
    size: int = 0


def capture_states(files: Iterable[str], folder: int | None = None) -> list[PathState] | None:
    """Return the states of files and folders before they are read, or None if a change was too recent.

    For a missing path, the state of the parent folder is used, which changes when the path appears. Paths as
    in `file_identity`.
    """
    states = []
    try:
        for path in files:
            current_ns = time.time_ns()
            state = _capture_state(path, folder)
            if not has_stable_mtime(state[1], current_ns):
                return None
            states.append(state)
    except OSError:
        return None
    return states


def _capture_state(path: str, folder: int | None) -> PathState:
    try:
        return path, file_identity(path, folder)
    except FileNotFoundError:
        parent_path = f"{os.path.dirname(path) or '.'}/."  # the folder itself, also behind a link
        state = parent_path, file_identity(parent_path, folder)
        with contextlib.suppress(FileNotFoundError):  # it may have come meanwhile
            state = path, file_identity(path, folder)
        return state


def is_unchanged(states: Iterable[PathState], folder: int | None = None) -> bool:
    """Return True if no captured state has changed; paths as in `file_identity`."""
    lstat = os.lstat
    try:
        for path, identity in states:  # an idle tick consists of these calls
            if identity != to_identity(lstat(path, dir_fd=folder)):
                return False
    except OSError:
        return False
    return True


def is_current(reading: FileReading[T], path: str) -> bool:
    """Return True if a file certainly has the same content as when it was read."""
    try:  # every entry of every prompt passes here
        return reading.is_settled and reading.identity == to_identity(os.lstat(path))
    except OSError:
        return False


def file_identity(path: str, folder: int | None = None) -> Identity:
    """Return the identity of a file or folder, which changes with each modification. Raises `OSError`.

    `path` may be relative to an open `folder`, which is faster for many files.
    """
    return to_identity(lstat(path, folder))


def lstat(path: str, folder: int | None = None) -> os.stat_result:
    """Return the result of `lstat`. Raises `OSError` about this file, and `DiskError` for any other failure."""
    try:  # not `@raises_disk_error`, which takes twice as long: every turn passes here
        return os.lstat(path, dir_fd=folder)
    except OSError as error:
        require_about_one_file(path, error)
        raise


def path_exists(path: str) -> bool:
    """Return True if a path exists. Raises `DiskError` if the disk fails."""
    try:
        lstat(path)
    except OSError:
        return False
    return True


def is_folder(path: str) -> bool:
    """Return True if a path leads to a folder. Raises `DiskError` if the disk fails.

    `Path.is_dir` and similar methods treat a refused check as a missing path, always from Python 3.14 on.
    """
    return stat.S_ISDIR(_file_mode(path))


def is_file(path: str) -> bool:
    """Return True if a path leads to a regular file. Raises `DiskError` if the disk fails."""
    return stat.S_ISREG(_file_mode(path))


def is_link(path: str) -> bool:
    """Return True if a path is a link. Raises `DiskError` if the disk fails."""
    try:
        return stat.S_ISLNK(lstat(path).st_mode)
    except OSError:
        return False


def _file_mode(path: str) -> int:
    try:
        return os.stat(path).st_mode
    except OSError as error:
        require_about_one_file(path, error)
        return 0


@contextlib.contextmanager
def open_folder(path: str | Path) -> Iterator[int]:
    """Open a folder for reading the contents. Raises `OSError`, also for a link to a folder."""
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        require_about_one_file(path, error)
        raise
    try:
        yield folder
    finally:
        os.close(folder)


def probe_mtime_resolution(touch: Callable[[], os.stat_result]) -> None:
    """Detect a device on which each change gets a new timestamp; `touch` modifies a file and returns the
    status.

    A clock with ticks of a millisecond or more cannot distinguish three changes within one tick. If the
    process is suspended meanwhile, the probe is repeated. If a file system refuses to set timestamps, nothing
    is learned.
    """
    try:
        for _ in range(3):
            start_ns = time.perf_counter_ns()
            first, second, third = touch(), touch(), touch()
            if time.perf_counter_ns() - start_ns < _MILLISECOND_NS:
                break
        else:
            return
    except OSError:
        return
    if first.st_ctime_ns < second.st_ctime_ns < third.st_ctime_ns:
        _exact_devices.add(first.st_dev)
    else:
        _exact_devices.discard(first.st_dev)


def has_exact_mtime(identity: Identity) -> bool:
    """Return True if any edit after the read is certain to change the identity."""
    return identity[4] in _exact_devices


def has_stable_mtime(identity: Identity, current_ns: int) -> bool:
    """Return True if an edit after `current_ns`, a `time.time_ns()`, is certain to change the identity.

    Timestamps other than whole milliseconds come from the kernel's own clock, which ticks at least every ten
    milliseconds.
    """
    if has_exact_mtime(identity):
        return True
    changed_ns = identity[3]
    granule = FINE_GRANULE_NS if changed_ns % _MILLISECOND_NS else GRANULE_NS
    return current_ns - max(identity[2], changed_ns) > granule


def refresh_reading(
    path: str,
    earlier: FileReading[T] | None,
    decode: Callable[[bytes], T],
    *,
    limit_bytes: int,
    load: Load = fs.read_with_status,
) -> FileReading[T]:
    """Read a file. Return the earlier reading itself if nothing changed.

    `decode` converts the bytes to a value, or raises `ConfigError`; `load` reads them. Raises `OSError` for
    an unreadable file, including a path that is not a regular file.
    """
    current_ns = time.time_ns()
    raw, status = load(path, limit_bytes)
    identity = to_identity(status)
    # Another file may have been put in its place while it was read.
    is_settled = has_stable_mtime(identity, current_ns) and file_identity(path) == identity
    digest = sha256(raw).hexdigest()
    if earlier is not None and earlier.digest == digest:
        is_same = (earlier.identity, earlier.is_settled) == (identity, is_settled)
        return earlier if is_same else FileReading(earlier.outcome, digest, identity, is_settled, len(raw))
    try:
        return FileReading(decode(raw), digest, identity, is_settled, len(raw))
    except ConfigError as error:
        return FileReading(error.with_traceback(None), digest, identity, is_settled, len(raw))


# --- cached contents of the files below one folder ------------------------------------------------
# It may be dropped at any moment, and is, beyond a number of bytes.


CACHE_LIMIT_BYTES = 32 << 20
_OVERHEAD_BYTES = 1 << 10  # Python's overhead for a small value


class FileCache:
    """Cached values of files, by path relative to the folder; each file is always read by the same `decode`.

    Values must not be modified, because all callers share them.
    """

    def __init__(self, base: Path) -> None:
        self._base = str(base)
        self._readings: dict[str, FileReading[Any]] = {}
        self._cached_bytes = 0

    def get_value(
        self, file: str, decode: Callable[[bytes], T], *, limit_bytes: int, load: Load = fs.read_with_status
    ) -> T:
        """Return the value of a file. Raises the errors of `get_reading`, and the error raised by `decode`."""
        outcome = self.get_reading(file, decode, limit_bytes=limit_bytes, load=load).outcome
        if isinstance(outcome, ConfigError):
            raise outcome.with_traceback(None)
        return outcome

    def get_reading(
        self, file: str, decode: Callable[[bytes], T], *, limit_bytes: int, load: Load = fs.read_with_status
    ) -> FileReading[T]:
        """Return the reading of a file, with the value or error; the same value if nothing changed.

        `decode`, `load` and the errors are those of `refresh_reading`.
        """
        path, cached = f"{self._base}/{file}", self._readings.get(file)
        if cached is not None and is_current(cached, path):
            return cached
        reading = refresh_reading(path, cached, decode, limit_bytes=limit_bytes, load=load)
        self._store(file, reading)
        return reading

    def find_unchanged_digest(self, file: str) -> str:
        """Return the digest of a file certainly unchanged since the last read or write, else an empty string."""
        cached = self._readings.get(file)
        return cached.digest if cached is not None and is_current(cached, f"{self._base}/{file}") else ""

    def record_write(self, file: str, value: object, raw: bytes, status: os.stat_result, *, digest: str = "") -> None:
        """Cache a value this process wrote: with exact timestamps the file is not read again.

        `raw`: the bytes behind the value. `digest` is given for files whose digest is needed.
        """
        identity = to_identity(status)
        self._store(file, FileReading(value, digest, identity, has_exact_mtime(identity), len(raw)))

    def _store(self, file: str, reading: FileReading[Any]) -> None:
        if replaced := self._readings.pop(file, None):
            self._cached_bytes -= replaced.size + _OVERHEAD_BYTES
        self._readings[file] = reading
        self._cached_bytes += reading.size + _OVERHEAD_BYTES
        while self._cached_bytes > CACHE_LIMIT_BYTES and len(self._readings) > 1:
            self._cached_bytes -= self._readings.pop(next(iter(self._readings))).size + _OVERHEAD_BYTES
