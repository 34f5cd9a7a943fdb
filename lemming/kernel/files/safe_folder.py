"""Folders opened without following links, and the placement of files: written beside the target, then
renamed.
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys
from collections.abc import Callable
from functools import cache
from itertools import count
from pathlib import Path

from lemming.kernel.files.disk import current_disk, notify_observers, write_all
from lemming.kernel.files.disk_errors import require_about_one_file, require_relative, write_error
from lemming.kernel.files.file_modes import existing_mode, file_mode, folder_mode
from lemming.kernel.files.temporary_files import open_temporary

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
            self._descriptor = open_folder(root, relative, make=True)
        except OSError as error:
            raise write_error(root, relative, error) from error

    def write_file(self, name: str, content: bytes) -> os.stat_result:
        """Write a file as `fs.write_atomic` does, and return the status."""
        descriptor = self._publish(name, content, is_new=False)
        try:
            return os.fstat(descriptor)
        except OSError as error:
            raise write_error(self._root, f"{self.relative}/{name}", error) from error
        finally:
            os.close(descriptor)

    def write_new_file(self, name: str, content: bytes) -> None:
        """Write a new file as `write_file` does, without checking for an existing file whose mode to keep."""
        os.close(self._publish(name, content, is_new=True))

    def _publish(self, name: str, content: bytes, *, is_new: bool) -> int:
        """Write the content to the file, and return the file's descriptor."""
        relative, folder = f"{self.relative}/{name}", self._descriptor
        try:
            descriptor, temporary = write_temporary(folder, name, content, self._mode, is_new=is_new)
            try:
                notify_observers("rename", relative, self._root)
                current_disk().rename(temporary, name, folder, folder)
            except BaseException:
                os.close(descriptor)
                raise
        except OSError as error:
            raise write_error(self._root, relative, error) from error
        return descriptor

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

    Every `OSError` of the block becomes a `DiskError` that names the file.
    """

    def __init__(self, root: Path, relative: str, *, make: bool = True) -> None:
        self._root, self._relative, self._make = root, relative, make

    def __enter__(self) -> tuple[int, str]:
        root, relative = self._root, self._relative
        parent_path, _, name = relative.rpartition("/")
        try:
            require_relative(relative)
            self._folder = open_folder(root, parent_path, make=self._make)
        except OSError as error:
            raise write_error(root, relative, error) from error
        return self._folder, name

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        os.close(self._folder)
        if isinstance(error, OSError):
            raise write_error(self._root, self._relative, error) from error


def open_folder(root: Path, relative: str, *, make: bool) -> int:
    """Return the descriptor of a folder below `root`, optionally creating it.

    Raises `OSError`, also for a link.
    """
    descriptor = open_without_links(f"{root}/{relative}", _ROOT)
    return descriptor if descriptor >= 0 else _walk(root, relative, make)


def _walk(root: Path, relative: str, make: bool) -> int:
    descriptor, path = os.open(root, _ROOT), ""
    try:
        for folder in relative.split("/") if relative else ():
            path += f"{folder}/"
            inner = _open_subfolder(folder, descriptor, path if make else "")
            os.close(descriptor)
            descriptor = inner
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _open_subfolder(name: str, parent_descriptor: int, path_to_make: str) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=parent_descriptor)
    except FileNotFoundError:
        if not path_to_make:
            raise
    notify_observers("mkdir", name)
    with contextlib.suppress(FileExistsError):  # created by another process meanwhile
        os.mkdir(name, folder_mode(path_to_make), dir_fd=parent_descriptor)
    return os.open(name, _FOLDER, dir_fd=parent_descriptor)


def write_temporary(
    folder: int, name: str, content: bytes, mode: int, *, sync: bool = False, is_new: bool = False
) -> tuple[int, str]:
    """Write a temporary file. Return the descriptor, to close after the rename, and the temporary name.

    `mode`: the mode of a file that replaces none.
    """
    notify_observers("write", name)
    old_mode = None if is_new else existing_mode(folder, name)
    descriptor, temporary = open_temporary(folder, name, old_mode or mode)
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


# --- openat2 -------------------------------------------------------------------------------------
# Linux's `openat2`: one call that opens a path and refuses every symbolic link on it. The walk takes a call a
# folder for that. Python has no function for it.


MIN_OPENINGS = 1000
"""Number of openings that pays for the import of `ctypes`; a command that writes little never needs it."""

_OPENAT2 = 437
_SUPPORTED_MACHINES = ("x86_64", "aarch64")  # elsewhere the call may have another number
_AT_FDCWD = -100  # AT_FDCWD
_NO_SYMLINKS = 0x04

_openings = count()


def open_without_links(path: str, flags: int) -> int:
    """Return the descriptor of the file or folder at `path`, opened without following links or creating
    anything.

    Returns -1 if a single call cannot do so, for any reason. The caller then walks the path.
    """
    if next(_openings) < MIN_OPENINGS:
        return -1
    # 24 is the size of `struct open_how`.
    call = _system_call()
    return call(_OPENAT2, _AT_FDCWD, os.fsencode(path), _open_how(flags), 24) if call else -1


@cache
def _system_call() -> Callable[..., int] | None:
    """Return libc's `syscall`, or None if the kernel, or a filter in front of it, has no openat2."""
    is_android = hasattr(sys, "getandroidapilevel")  # there a call that an app may not make ends the process
    if sys.platform != "linux" or is_android or os.uname().machine not in _SUPPORTED_MACHINES:
        return None
    import ctypes

    # Without argument types, which cost an import: ctypes passes the address of the bytes and plain ints, whose
    # sign fills the register on both architectures.
    call = ctypes.CDLL(None).syscall
    descriptor: int = call(_OPENAT2, _AT_FDCWD, b"/", _open_how(os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), 24)
    if descriptor < 0:
        return None
    os.close(descriptor)
    return call


@cache
def _open_how(flags: int) -> bytes:
    """Return the kernel's `struct open_how`: flags, mode, resolve flags."""
    return struct.pack("=QQQ", flags, 0, _NO_SYMLINKS)
