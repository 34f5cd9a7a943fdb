"""The lock of an organisation: the kernel's, so it dies with its holder."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from lemming import fs
from lemming.errors import DiskError, OrgBusy


class FolderLock:
    """A kernel lock on a file, which is never removed.

    The file's content describes the holder, for the message of whoever is refused.
    """

    def __init__(self, root: Path, relative: str) -> None:
        self._file = fs.AppendFile(root, relative)
        try:
            fcntl.flock(self._file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = self.read().decode("utf-8", "replace").strip()
            self._file.close()
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise DiskError(f"cannot lock: {error.strerror}", where=str(root / relative)) from error
            raise OrgBusy(holder, where=str(root)) from error

    def read(self) -> bytes:
        """Return what the last holder wrote."""
        return self._file.read()[:4096]

    def describe(self, holder: bytes) -> None:
        """Replace the description of the holder."""
        self._file.truncate(0)
        self._file.append(holder)

    def restamp(self) -> os.stat_result:
        """Change nothing but the file's stamps, and return what `stat` then says."""
        return self._file.restamp()

    def release(self) -> None:
        """Let the next one in."""
        self._file.close()
