"""Errors for refused file operations: the error, the file, and the remedy. Pure."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from lemming.kernel.base.errors import ConfigError, ContractError, CorruptState, DiskError, ToolError

P = ParamSpec("P")
T = TypeVar("T")
PathT = TypeVar("PathT", bound=str | os.PathLike[str])

FILE_ERRORS = (ConfigError, ContractError, CorruptState, ToolError)
"""Errors in a file or a text, which say nothing about the disk or the run."""
_HINTS = {
    errno.ENOSPC: "free some space and run again; nothing is lost",
    errno.EDQUOT: "free some space and run again; nothing is lost",
    errno.EROFS: "make the file system writable and run again",
    errno.EACCES: "check the owner and the mode of this path",
    errno.EPERM: "check the owner and the mode of this path",
    errno.EMFILE: "raise `ulimit -n` and run again",
    errno.EBUSY: "unmount it and run again",
    errno.ELOOP: "replace the symbolic link by a file or folder of the organisation",
    errno.ENOENT: "run again; the file or its folder was removed at the same time",
    errno.ENOTDIR: "move the file away: a folder belongs there",
    errno.EIO: "check the disk before running again; the journal is kept",
}
# The cause is the path itself or its permissions. Any other errno could hit any file.
_FILE_ERRNOS = frozenset({
    errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL, errno.EFBIG,
    errno.EACCES,
    errno.EPERM, errno.ENXIO, errno.EMLINK,
})  # fmt: skip


def is_about_one_file(error: OSError) -> bool:
    """Return True if the cause of the error is the file at the path or its permissions.

    Any other error (an I/O error, too many open files, no memory) is unrelated to the file.
    """
    return error.errno in _FILE_ERRNOS


def require_about_one_file(path: str | os.PathLike[str], error: OSError) -> None:
    """Raise `DiskError` for a failed read whose cause is not the file itself.

    The state of the file is then unknown, and treating the file as missing would make the outcome a matter of
    luck.
    """
    if not is_about_one_file(error):
        hint = _HINTS.get(error.errno or 0, "check the disk and run again; the journal is kept")
        message = f"cannot read: {error.strerror or error}"
        raise DiskError(message, where=os.fspath(path), hint=hint) from error


def suggest_repair(error: OSError, otherwise: str) -> str:
    """Return the fix of an unreadable path: one whose mode is wrong must not be moved away."""
    return _HINTS[errno.EACCES] if error.errno in (errno.EACCES, errno.EPERM) else otherwise


def raises_disk_error(look: Callable[Concatenate[PathT, P], T]) -> Callable[Concatenate[PathT, P], T]:
    """Decorate a function that reads a path: raise `OSError` about the path only, else `DiskError`."""

    @wraps(look)
    def wrapper(path: PathT, /, *args: P.args, **named: P.kwargs) -> T:
        try:
            return look(path, *args, **named)
        except OSError as error:
            require_about_one_file(path, error)
            raise

    return wrapper


def write_error(root: Path, relative: str, error: OSError) -> DiskError:
    """Return the error for a failed write below `root`."""
    hint = _HINTS.get(error.errno or 0, "check this path and run again")
    message = f"cannot write: {error.strerror or error}"
    return DiskError(message, where=str(root / relative), hint=hint, concerns_one_file=is_about_one_file(error))


def require_relative(relative: str) -> None:
    """Raise `OSError` for a path outside the folder."""
    if (".." in relative and ".." in relative.split("/")) or relative.startswith("/") or "\0" in relative:
        raise OSError(errno.EINVAL, "not a path below the root", relative)
