"""Folders opened without following links, and the placement of files: written beside the target, then
renamed.

A file is written as `.NAME.tmp` beside its target and then renamed. Its writer holds a kernel lock on it until the rename,
so any process can distinguish an active file, which is left alone, from a crash's leftover, which is removed.

Journals, ledgers, logs, outboxes, memories and archived files hold messages of people and models. They are readable by
their owner, and by the group if the umask leaves the group all rights. All other files follow the umask.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
from pathlib import Path

from lemming.kernel.files.disk import current_disk, notify_observers, write_all
from lemming.kernel.files.disk_errors import is_about_one_file, require_about_one_file, require_relative, write_error

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ROOT = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Folder:
    """A folder of an organisation that stays open, to avoid walking the path for each file.

    The folder may have been renamed since. A long-term holder must check that the path still leads to the
    folder.
    """

    def __init__(self, root: Path, relative: str) -> None:
        self._root, self.relative, self._mode = root, relative, file_mode(f"{relative}/.")
        try:
            self._descriptor = _open_below_root(root, relative, [])
        except OSError as error:
            raise write_error(root, relative, error) from error

    def write_file(self, name: str, content: bytes, *, is_new: bool = False) -> os.stat_result:
        """Write a file like `fs.write_atomic`, and return the status. `is_new`: there is no file with a mode to keep"""
        relative, folder = f"{self.relative}/{name}", self._descriptor
        try:
            descriptor, temporary = write_temporary(folder, name, content, self._mode, is_new=is_new)
            try:
                notify_observers("rename", relative, self._root)
                current_disk().rename(temporary, name, folder, folder)
                return os.fstat(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise write_error(self._root, relative, error) from error

    def status(self) -> os.stat_result:
        """Return the current status of the folder."""
        try:
            return os.fstat(self._descriptor)
        except OSError as error:
            require_about_one_file(self._root / self.relative, error)
            raise write_error(self._root, self.relative, error) from error

    def close(self) -> None:
        """Close the descriptor; safe to repeat."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class open_parent:  # noqa: N801 - used like a function; a class costs a third of a generator here
    """Context manager: open the parent folder of `relative` without following links; (descriptor, last name).

    Every `OSError` of the block becomes a `DiskError` that names the file. Folders made for the file are then removed.
    """

    def __init__(self, root: Path, relative: str, *, make: bool = True) -> None:
        self._root, self._relative = root, relative
        self._new_folders: list[str] | None = [] if make else None

    def __enter__(self) -> tuple[int, str]:
        root, relative = self._root, self._relative
        parent_path, _, name = relative.rpartition("/")
        try:
            require_relative(relative)
            self._folder = _open_below_root(root, parent_path, self._new_folders)
        except OSError as error:
            self._remove_new_folders()
            raise write_error(root, relative, error) from error
        return self._folder, name

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        os.close(self._folder)
        if isinstance(error, OSError):
            self._remove_new_folders()
            raise write_error(self._root, self._relative, error) from error

    def _remove_new_folders(self) -> None:
        """Remove the new folders, innermost first, unless another process has put a file there."""
        with contextlib.suppress(OSError):
            for path in reversed(self._new_folders or ()):
                parent_path, _, name = path.rpartition("/")
                parent = _open_below_root(self._root, parent_path)
                try:
                    os.rmdir(name, dir_fd=parent)
                finally:
                    os.close(parent)


def _open_below_root(root: Path, relative: str, new_folders: list[str] | None = None) -> int:
    """Return the descriptor of a folder below `root`. Raises `OSError`. `new_folders`: None, or gets new paths."""
    descriptor, path = os.open(root, _ROOT), ""
    try:
        for folder in relative.split("/") if relative else ():
            path += f"{folder}/"
            inner = _open_subfolder(folder, descriptor, path, new_folders)
            os.close(descriptor)
            descriptor = inner
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _open_subfolder(name: str, parent_descriptor: int, path: str, new_folders: list[str] | None) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=parent_descriptor)
    except FileNotFoundError:
        if new_folders is None:
            raise
    notify_observers("mkdir", name)
    with contextlib.suppress(FileExistsError):  # created by another process meanwhile
        mode = _restrict_mode(_FOLDER_MODE) if _PRIVATE_FOLDER.match(path) else _FOLDER_MODE
        os.mkdir(name, mode, dir_fd=parent_descriptor)
        new_folders.append(path[:-1])
    return os.open(name, _FOLDER, dir_fd=parent_descriptor)


def write_temporary(
    folder: int, name: str, content: bytes, mode: int, *, sync: bool = False, is_new: bool = False
) -> tuple[int, str]:
    """Write a temporary file. Return its descriptor and name. `mode`: the mode of a file that replaces none."""
    notify_observers("write", name)
    old_mode = None if is_new else _existing_mode(folder, name)
    descriptor, temporary = _open_temporary(folder, name, old_mode or mode)
    try:
        if old_mode is not None:
            os.fchmod(descriptor, old_mode)  # undo the umask
        write_all(descriptor, content)
        if sync:
            notify_observers("sync", name)
            current_disk().sync(descriptor)
    except BaseException as error:
        # Any other exception ends the process: the file stays, as after a kill.
        if isinstance(error, OSError):
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
        os.close(descriptor)
        raise
    return descriptor, temporary


_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def _open_temporary(folder: int, name: str, mode: int = 0o644) -> tuple[int, str]:
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
    """Return True if `name` is the name of a temporary file of `_open_temporary`."""
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


_FOLDER_MODE, _FILE_MODE, _OTHERS, _GROUP = 0o755, 0o644, 0o007, 0o070
_PRIVATE_FOLDER = re.compile(r"(?:\.lemming|logs|aside|agents/[^/]+/(?:outbox|memory|logs))(?:/|\Z)")
_PRIVATE_FILE = re.compile(r"(?:\.lemming|logs)/|agents/[^/]+/(?:logs/|(?:turns|channel)\.jsonl\Z)")


def file_mode(relative: str) -> int:
    """Return the mode for a new file, before the umask. Entries and memories rely on the privacy of their folders."""
    return _restrict_mode(_FILE_MODE) if _PRIVATE_FILE.match(relative) else _FILE_MODE


def _existing_mode(folder: int, name: str) -> int | None:
    """Return the mode of the file to be replaced, which is preserved, or None if there is none."""
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    return mode & 0o777 | 0o600 if stat.S_ISREG(mode) else None


def _restrict_mode(mode: int) -> int:
    return mode & ~(_OTHERS | (_GROUP if _umask() & _GROUP else 0))


def _umask() -> int:
    """Return the process's umask, on Linux without setting the umask for an instant."""
    try:
        with open("/proc/self/status", "rb") as file:
            if match := re.search(rb"^Umask:\s*([0-7]+)$", file.read(), re.MULTILINE):
                return int(match[1], 8)
    except OSError:
        pass
    umask = os.umask(_GROUP | _OTHERS)
    os.umask(umask)
    return umask
