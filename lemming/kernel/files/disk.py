"""The system calls for changes on the disk, in one small class, for `lemming.kernel.files.fs` alone.

No other module calls them. Tests substitute another `Disk`: a disk with a log of syncs, a disk with partial
writes, a disk with a broken protocol rule to show that the breach is detected.
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
    """Writes some of the bytes and returns their number; a plain function, which saves a call."""

    def truncate(self, descriptor: int, size: int) -> None:
        """Cut a file to `size` bytes."""
        os.ftruncate(descriptor, size)

    def touch(self, descriptor: int) -> None:
        """Set a file's timestamps to the current time."""
        os.utime(descriptor)

    def rename(self, source: str, target: str, source_folder: int, folder: int) -> None:
        """Rename a file. An existing target is replaced atomically."""
        os.rename(source, target, src_dir_fd=source_folder, dst_dir_fd=folder)

    def sync(self, descriptor: int) -> None:
        """Make a file's bytes survive power loss, but not the file's name."""
        if hasattr(fcntl, "F_FULLFSYNC"):  # macOS: fsync alone leaves the bytes in the drive's cache
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        elif hasattr(os, "fdatasync"):
            os.fdatasync(descriptor)
        else:
            os.fsync(descriptor)

    def sync_folder(self, descriptor: int) -> None:
        """Make the names in a folder survive power loss, but not the files' bytes."""
        os.fsync(descriptor)

    def sync_file_system(self, descriptor: int) -> None:
        """Make everything on the descriptor's file system survive power loss."""
        # Python has no function for it, and `os.sync` flushes every disk of the machine.
        import ctypes

        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if syncfs is None:  # not Linux
            os.sync()
        elif syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


_disk_stack: list[Disk] = [Disk()]


def current_disk() -> Disk:
    """Return the current disk."""
    return _disk_stack[-1]


def write_all(descriptor: int, content: bytes) -> None:
    """Write the bytes through the current disk, in one call if the system accepts them all."""
    target_disk = _disk_stack[-1]
    # The system may take fewer bytes than given; a journal line that ends half-way would be torn.
    written = target_disk.write(descriptor, content)
    while written < len(content):
        written += target_disk.write(descriptor, content[written:])


@contextlib.contextmanager
def use_disk(replacement: Disk) -> Iterator[None]:
    """Use another disk while the block runs."""
    _disk_stack.append(replacement)
    try:
        yield
    finally:
        _disk_stack.remove(replacement)


# --- observers of changes ------------------------------------------------------------------------
# Called just before the change: crash tests stop the process there.


ChangeObserver = Callable[[str, str], None]
_observers: list[tuple[ChangeObserver, Path | None]] = []


@contextlib.contextmanager
def observe_changes(observer: ChangeObserver, *, only: Path | None = None) -> Iterator[None]:
    """Call `observer(operation, path)` before every change of the disk while the block runs.

    With `only`, the observer is called only for names added or removed below that root. Crash tests raise
    from the observer to stop the world at the exact point.
    """
    _observers.append((observer, only))
    try:
        yield
    finally:
        _observers.remove((observer, only))


def notify_observers(operation: str, path: str, root: Path | None = None) -> None:
    """Notify the observers of an imminent change."""
    for observer, only in _observers:
        if only is None or only == root:
            observer(operation, path)
