"""The lock of an organisation, a kernel lock, which is released when its holder dies.

Two locks on one file. `flock` keeps a second engine out. A holder with a written description also takes a
record lock (`F_OFD_SETLK`), which any process can query without taking a lock: a query never delays an
engine, and a killed engine's leftover text is never mistaken for a holder. Only the owner may open the file,
because any process able to open the file can lock it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import platform
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from lemming.kernel.base.errors import DiskError, OrgBusy
from lemming.kernel.files import fs

MAX_TRIES = 250  # of 20 ms each

_OWNER_ONLY = 0o600
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DESCRIPTION_BYTES = 4096
_IS_LINUX = platform.system() == "Linux"
# Without such locks (macOS), `F_GETLK` reports `flock` as well.
_SET, _GET = getattr(fcntl, "F_OFD_SETLK", 0), getattr(fcntl, "F_OFD_GETLK", fcntl.F_GETLK)


@contextlib.contextmanager
def lock_folder(root: Path, folder: str) -> Iterator[None]:
    """Lock a folder while the block reads, changes and writes a file in it. Other writers wait.

    The engine reads such files without the lock. Raises `OrgBusy` after some seconds.
    """
    fs.make_folder(root, folder)
    descriptor = os.open(root / folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for _ in range(MAX_TRIES):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(0.02)
        else:
            raise OrgBusy(f"{folder} is being changed by another process", where=str(root), hint="try again")
        yield
    finally:
        os.close(descriptor)


class FolderLock:
    """A kernel lock on a file that is never removed.

    The file's content describes the holder, for the error message of a refused process. Raises an `OrgBusy`
    without a message if another process holds the lock.
    """

    def __init__(self, root: Path, relative: str) -> None:
        # Never removed: a new file of this name could be locked beside the old one, by a second engine.
        self._file = fs.AppendFile(root, relative, mode=_OWNER_ONLY)
        try:
            # An existing file keeps its mode, and any user able to open it could lock it for ever.
            os.fchmod(self._file.fileno(), _OWNER_ONLY)
            fcntl.flock(self._file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise DiskError(f"cannot lock: {error.strerror}", where=str(root / relative)) from error
            raise OrgBusy("", where=str(root)) from error

    def load_holder(self) -> bytes:
        """Return the description of the last holder."""
        return self._file.read_first(_DESCRIPTION_BYTES)

    def write_holder(self, holder: bytes, *, is_leaving: bool = False) -> None:
        """Replace the description of the holder. Unless the holder is leaving, `load_lock_holder` then returns it."""
        # Not marked while it is written: a reader would see half a description.
        self._set_record_lock(fcntl.F_UNLCK)
        # Truncated only under the lock: earlier, it would erase the description of a running engine.
        self._file.truncate(0)
        self._file.append(holder)
        if not is_leaving:
            self._set_record_lock(fcntl.F_WRLCK)

    def restamp(self) -> os.stat_result:
        """Update only the file's timestamps, and return the status."""
        return self._file.restamp()

    def release(self) -> None:
        """Release the lock."""
        self._file.close()

    def _set_record_lock(self, kind: int) -> None:
        with contextlib.suppress(OSError):  # no such locks on this file system: readers see no holder
            if _SET:
                fcntl.fcntl(self._file.fileno(), _SET, _record_lock(kind))


def load_lock_holder(root: Path, relative: str) -> bytes | None:
    """Return the holder's description, or None if the lock is free; takes no lock. Raises `DiskError`."""
    try:
        descriptor = os.open(root / relative, _READ_FLAGS)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DiskError(f"cannot read: {error.strerror}", where=str(root / relative)) from error
    try:
        answer = fcntl.fcntl(descriptor, _GET, _record_lock(fcntl.F_WRLCK))
        if struct.unpack_from("h", answer, 0 if _IS_LINUX else 20)[0] == fcntl.F_UNLCK:
            return None
        return os.pread(descriptor, _DESCRIPTION_BYTES, 0)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _record_lock(kind: int) -> bytes:
    """Return the system's `struct flock` for a whole file."""
    if _IS_LINUX:
        return struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, 0, 0)
    return struct.pack("qqihh", 0, 0, 0, kind, os.SEEK_SET)
