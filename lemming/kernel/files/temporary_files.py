"""Temporary files, written beside their target and then renamed: `.NAME.tmp` next to `NAME`.

A writer holds a kernel lock on the temporary file until the rename. Any process can therefore distinguish
another writer's active file, which is left alone, from a crash's leftover, which is removed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat

from lemming.kernel.files.disk_errors import is_about_one_file

_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_temporary(folder: int, name: str, mode: int = 0o644) -> tuple[int, str]:
    """Create an empty file in an open folder, to be renamed to `name`.

    Return the descriptor and the temporary name.

    The file is locked until the descriptor is closed, after the rename.
    """
    # No name may have more than 255 bytes, and a character has at most four.
    short = name if len(name) <= 50 else os.fsdecode(os.fsencode(name)[:200])
    temporary = f".{short}.tmp"  # under which a leftover is found again
    descriptor = _create(folder, temporary, mode)
    if descriptor is None and _is_leftover(folder, temporary, remove=True):
        descriptor = _create(folder, temporary, mode)
    while descriptor is None:
        temporary = f".{short}.{os.urandom(6).hex()}.tmp"  # no other writer has this name
        descriptor = _create(folder, temporary, mode)
    return descriptor, temporary


def is_temporary(name: str) -> bool:
    """Return True if `name` is the name of a temporary file of `open_temporary`."""
    return name.startswith(".") and name.endswith(".tmp")


def is_orphaned(temporary: str) -> bool:
    """Return True if a temporary file was left by a crash and no process is writing it."""
    return _is_leftover(None, temporary, remove=False)


def _create(folder: int, temporary: str, mode: int) -> int | None:
    """Return the descriptor of a new, locked file, or None if another writer came first."""
    try:
        descriptor = os.open(temporary, _CREATE, mode, dir_fd=folder)
    except FileExistsError:
        return None
    # Between creation and lock, another writer may have removed it as a leftover.
    if _lock(descriptor) and os.fstat(descriptor).st_nlink:
        return descriptor
    os.close(descriptor)
    return None


def _is_leftover(folder: int | None, temporary: str, *, remove: bool) -> bool:
    try:
        descriptor = os.open(temporary, _OPEN, dir_fd=folder)
    except FileNotFoundError:
        return remove
    except OSError as error:
        if not is_about_one_file(error):
            raise
        return False
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or not _lock(descriptor):
            return False
        # Another writer may have made a new one of the same name since this one was opened.
        if status.st_ino != os.stat(temporary, dir_fd=folder, follow_symlinks=False).st_ino:
            return False
        if remove:
            os.unlink(temporary, dir_fd=folder)
        return True
    except FileNotFoundError:  # it was renamed into its place, or removed, meanwhile
        return remove
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise
        return False
    return True
