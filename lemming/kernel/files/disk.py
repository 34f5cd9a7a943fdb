"""The system calls that change what is on the disk, in one small class, for `lemming.kernel.files.fs` alone.

Nothing else calls them. Tests put another `Disk` in place: one that remembers what was synced, one that
writes half, one that breaks a rule of the protocol to show that the breach is found.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path


class Disk:
    """The real disk. Every method raises `OSError` as the system does."""

    write: Callable[[int, bytes], int] = staticmethod(os.write)
    """Writes some of the bytes and returns how many; of the real disk without a call of its own."""

    def truncate(self, descriptor: int, size: int) -> None:
        """Cut a file to its first `size` bytes."""
        os.ftruncate(descriptor, size)

    def touch(self, descriptor: int) -> None:
        """Give a file the present time as its stamps."""
        os.utime(descriptor)

    def rename(self, source: str, target: str, source_folder: int, folder: int) -> None:
        """Give a file another name; what stood there is replaced in one step."""
        os.rename(source, target, src_dir_fd=source_folder, dst_dir_fd=folder)

    def sync(self, descriptor: int) -> None:
        """Make a file's bytes survive power loss; not its name."""
        if hasattr(fcntl, "F_FULLFSYNC"):  # macOS: fsync alone leaves the bytes in the drive's cache
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        elif hasattr(os, "fdatasync"):
            os.fdatasync(descriptor)
        else:
            os.fsync(descriptor)

    def sync_folder(self, descriptor: int) -> None:
        """Make the names in a folder survive power loss; not what is in the files."""
        os.fsync(descriptor)

    def sync_file_system(self, descriptor: int) -> None:
        """Make everything on the file system of this descriptor survive power loss."""
        # Python has no function for it, and `os.sync` flushes every disk of the machine.
        import ctypes

        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if syncfs is None:  # not Linux
            os.sync()
        elif syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


_in_place: list[Disk] = [Disk()]


def disk() -> Disk:
    """Return the disk in place."""
    return _in_place[-1]


def write_all(descriptor: int, content: bytes) -> None:
    """Write the bytes through the disk in place, in one call where the system takes them all."""
    in_place = _in_place[-1]
    written = in_place.write(descriptor, content)
    while written < len(content):
        written += in_place.write(descriptor, content[written:])


@contextlib.contextmanager
def on_disk(other: Disk) -> Iterator[None]:
    """Put another disk in place as long as the block runs."""
    _in_place.append(other)
    try:
        yield
    finally:
        _in_place.remove(other)


# --- who is told of each change ------------------------------------------------------------------
# Just before it is made: crash tests stop the world there.


Mutation = Callable[[str, str], None]
_observers: list[tuple[Mutation, Path | None]] = []


@contextlib.contextmanager
def observed(observer: Mutation, *, only: Path | None = None) -> Iterator[None]:
    """Call `observer(operation, path)` before every change of the disk, as long as the block runs.

    With `only`, it is told of what gets or loses a name below that root. Crash tests raise from the observer
    to stop the world at that very point.
    """
    _observers.append((observer, only))
    try:
        yield
    finally:
        _observers.remove((observer, only))


def announce(operation: str, path: str, root: Path | None = None) -> None:
    """Tell the observers of a change that is about to be made."""
    for observer, only in _observers:
        if only is None or only == root:
            observer(operation, path)
