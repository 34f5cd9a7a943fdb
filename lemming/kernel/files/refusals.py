"""What to tell a person when the file system refuses: the error, the file, and what to do. Pure."""

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
Place = TypeVar("Place", bound=str | os.PathLike[str])

OF_A_FILE = (ConfigError, ContractError, CorruptState, ToolError)
"""What is wrong with a file, or a text, and says nothing about the disk, or the run."""
_HINTS = {
    errno.ENOSPC: "the disk is full; free space and run again, nothing is lost",
    errno.EDQUOT: "the disk quota is used up; free space and run again, nothing is lost",
    errno.EROFS: "the file system is read-only; make it writable and run again",
    errno.EACCES: "no permission; check the owner and the mode of this path",
    errno.EPERM: "no permission; check the owner and the mode of this path",
    errno.EMFILE: "too many open files; raise `ulimit -n` and run again",
    errno.EBUSY: "something is mounted there; unmount it and run again",
    errno.ELOOP: "a symbolic link stands where a file or folder of the organisation should be; remove it",
    errno.ENOENT: "somebody removed the file or its folder at the same time; run again",
    errno.ENOTDIR: "something that is not a folder stands where a folder should be; move it away",
    errno.EIO: "the disk reported an error; the journal is kept, check the disk before running again",
}
# Something is wrong with that one path, or with who may write it: not with the disk.
_ODD = frozenset({
    errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL, errno.EFBIG,
    errno.EACCES,
    errno.EPERM, errno.ENXIO, errno.EMLINK,
})  # fmt: skip


def is_about_one_file(error: OSError) -> bool:
    """Return whether it is what stands at the path, or who may touch it, that made the system refuse.

    Anything else (an I/O error, too many open files, no memory) says nothing about the file.
    """
    return error.errno in _ODD


def require_about_one_file(path: str | os.PathLike[str], error: OSError) -> None:
    """Raise `DiskError` for a look that was refused for a reason that says nothing about the file.

    Then nobody knows what is there, and to go on as if nothing were would make the outcome a matter of luck.
    """
    if not is_about_one_file(error):
        hint = _HINTS.get(error.errno or 0, "check the disk and run again; the journal is kept")
        message = f"cannot look: {error.strerror or error}"
        raise DiskError(message, where=os.fspath(path), hint=hint) from error


def looking(look: Callable[Concatenate[Place, P], T]) -> Callable[Concatenate[Place, P], T]:
    """Let a function that looks at a path raise `OSError` about that path alone, else `DiskError`."""

    @wraps(look)
    def looked(path: Place, /, *args: P.args, **named: P.kwargs) -> T:
        try:
            return look(path, *args, **named)
        except OSError as error:
            require_about_one_file(path, error)
            raise

    return looked


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
