"""What to tell a person when the file system refuses: the error, the file, and what to do. Pure."""

from __future__ import annotations

import errno
from pathlib import Path

from lemming.errors import DiskError

_HINTS = {
    errno.ENOSPC: "the disk is full; free space and run again, nothing is lost",
    errno.EDQUOT: "the disk quota is used up; free space and run again, nothing is lost",
    errno.EROFS: "the file system is read-only; make it writable and run again",
    errno.EACCES: "no permission; check the owner and the mode of this path",
    errno.EPERM: "no permission; check the owner and the mode of this path",
    errno.EMFILE: "too many open files; raise `ulimit -n` and run again",
    errno.ELOOP: "a symbolic link stands where a file or folder of the organisation should be; remove it",
    errno.ENOENT: "somebody removed the file or its folder at the same time; run again",
    errno.ENOTDIR: "something that is not a folder stands where a folder should be; move it away",
    errno.EIO: "the disk reported an error; the journal is kept, check the disk before running again",
}
# Something is wrong with that one path, or with who may write it: not with the disk.
_ODD = frozenset({
    errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL, errno.EACCES,
    errno.EPERM, errno.ENXIO, errno.EMLINK,
})  # fmt: skip


def is_about_one_file(error: OSError) -> bool:
    """Return whether it is what stands at the path, or who may touch it, that made the system refuse.

    Anything else (an I/O error, too many open files, no memory) says nothing about the file.
    """
    return error.errno in _ODD


def refused(root: Path, relative: str, error: OSError) -> DiskError:
    """Return the error for a path below `root` that could not be written."""
    hint = _HINTS.get(error.errno or 0, "check this path and run again")
    message = f"cannot write: {error.strerror or error}"
    return DiskError(
        message, where=str(root / relative), hint=hint, concerns_one_file=is_about_one_file(error)
    )


def require_below(relative: str) -> None:
    """Raise `OSError` for a path that leads out of the folder that it is relative to."""
    if (".." in relative and ".." in relative.split("/")) or relative.startswith("/") or "\0" in relative:
        raise OSError(errno.EINVAL, "not a path below the root", relative)
