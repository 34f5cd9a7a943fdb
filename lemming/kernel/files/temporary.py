"""Files that are written beside their place and then renamed into it: `.NAME.tmp` next to `NAME`.

A writer holds a kernel lock on its temporary file until the file has its name. So whoever finds one can tell
what another writer is at work on, which is left alone, from what a crash left, which is removed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat

from lemming.kernel.files.refusals import is_about_one_file

_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_temporary(folder: int, name: str, mode: int = 0o644) -> tuple[int, str]:
    """Return a new, empty file in an open folder, to be renamed to `name`, and what it is called until then.

    It is locked until its descriptor is closed, which is to be done after the renaming.
    """
    # No name may have more than 255 bytes, and a character has at most four.
    short = name if len(name) <= 50 else os.fsdecode(os.fsencode(name)[:200])
    temporary = f".{short}.tmp"  # under which a leftover is found again
    descriptor = _create(folder, temporary, mode)
    if descriptor is None and _look_for_leftover(folder, temporary, remove=True):
        descriptor = _create(folder, temporary, mode)
    while descriptor is None:
        temporary = f".{short}.{os.urandom(6).hex()}.tmp"  # nobody else has this one
        descriptor = _create(folder, temporary, mode)
    return descriptor, temporary


def is_temporary(name: str) -> bool:
    """Return whether a file of this name is one that `open_temporary` made."""
    return name.startswith(".") and name.endswith(".tmp")


def is_left_over(temporary: str) -> bool:
    """Return whether a file is what a crash left: one that nobody is writing."""
    return _look_for_leftover(None, temporary, remove=False)


def _create(folder: int, temporary: str, mode: int) -> int | None:
    """Return the descriptor of a new file, locked; None when another writer came first."""
    try:
        descriptor = os.open(temporary, _CREATE, mode, dir_fd=folder)
    except FileExistsError:
        return None
    # Before it was locked, somebody may have taken it for a leftover, and be about to remove it.
    if _lock(descriptor) and os.fstat(descriptor).st_nlink:
        return descriptor
    os.close(descriptor)
    return None


def _look_for_leftover(folder: int | None, temporary: str, *, remove: bool) -> bool:
    try:
        descriptor = os.open(temporary, _OPEN, dir_fd=folder)
    except FileNotFoundError:
        return remove
    except OSError as error:
        if not is_about_one_file(error):
            raise
        return False
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or not _lock(descriptor):
            return False
        # Another writer may have made a new one of the same name since this one was opened.
        if found.st_ino != os.stat(temporary, dir_fd=folder, follow_symlinks=False).st_ino:
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
