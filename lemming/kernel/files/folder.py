"""Folders, opened without following a link, and how a file gets into one: beside its place, then renamed."""

from __future__ import annotations

import contextlib
import os
import struct
import sys
from collections.abc import Callable
from functools import cache
from itertools import count
from pathlib import Path

from lemming.kernel.files.disk import announce, disk, write_all
from lemming.kernel.files.modes import file_mode, folder_mode, kept_mode
from lemming.kernel.files.refusals import refused, require_about_one_file, require_below
from lemming.kernel.files.temporary import open_temporary

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ROOT = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Folder:
    """A folder of an organisation that stays open, so that nobody walks to it for each file.

    It may have been renamed since: whoever keeps one looks whether it still stands where it was.
    """

    def __init__(self, root: Path, relative: str) -> None:
        self._root, self.relative, self._mode = root, relative, file_mode(f"{relative}/.")
        try:
            self._descriptor = open_folder(root, relative, make=True)
        except OSError as error:
            raise refused(root, relative, error) from error

    def put(self, name: str, content: bytes) -> os.stat_result:
        """Do what `fs.publish` does, and return what `stat` says of the file then."""
        descriptor = self._publish(name, content, is_new=False)
        try:
            return os.fstat(descriptor)
        except OSError as error:
            raise refused(self._root, f"{self.relative}/{name}", error) from error
        finally:
            os.close(descriptor)

    def add(self, name: str, content: bytes) -> None:
        """Do the same where there is no file of that name, whose mode should stay."""
        os.close(self._publish(name, content, is_new=True))

    def _publish(self, name: str, content: bytes, *, is_new: bool) -> int:
        """Put the content there, and return the descriptor of the file."""
        relative, folder = f"{self.relative}/{name}", self._descriptor
        try:
            descriptor, temporary = write_beside(folder, name, content, self._mode, is_new=is_new)
            try:
                announce("rename", relative, self._root)
                disk().rename(temporary, name, folder, folder)
            except BaseException:
                os.close(descriptor)
                raise
        except OSError as error:
            raise refused(self._root, relative, error) from error
        return descriptor

    def status(self) -> os.stat_result:
        """Return what `stat` says of the folder now."""
        try:
            return os.fstat(self._descriptor)
        except OSError as error:
            require_about_one_file(self._root / self.relative, error)
            raise refused(self._root, self.relative, error) from error

    def close(self) -> None:
        """Give the descriptor back; safe to repeat."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class parent:  # noqa: N801 - used like a function; a class costs a third of a generator here
    """Open the folder that holds `relative` without following a link: (descriptor, last name).

    Every `OSError` of the block is a `DiskError` that names the file.
    """

    def __init__(self, root: Path, relative: str, *, make: bool = True) -> None:
        self._root, self._relative, self._make = root, relative, make

    def __enter__(self) -> tuple[int, str]:
        root, relative = self._root, self._relative
        above, _, name = relative.rpartition("/")
        try:
            require_below(relative)
            self._folder = open_folder(root, above, make=self._make)
        except OSError as error:
            raise refused(root, relative, error) from error
        return self._folder, name

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        os.close(self._folder)
        if isinstance(error, OSError):
            raise refused(self._root, self._relative, error) from error


def open_folder(root: Path, relative: str, *, make: bool) -> int:
    """Return the descriptor of a folder below `root`, made with `make`. Raises `OSError`, also for a link."""
    descriptor = open_at_once(f"{root}/{relative}", _ROOT)
    return descriptor if descriptor >= 0 else _walk(root, relative, make)


def _walk(root: Path, relative: str, make: bool) -> int:
    descriptor, path = os.open(root, _ROOT), ""
    try:
        for folder in relative.split("/") if relative else ():
            path += f"{folder}/"
            inner = _open_in(folder, descriptor, path if make else "")
            os.close(descriptor)
            descriptor = inner
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _open_in(name: str, above: int, path_to_make: str) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=above)
    except FileNotFoundError:
        if not path_to_make:
            raise
    announce("mkdir", name)
    with contextlib.suppress(FileExistsError):  # somebody came first
        os.mkdir(name, folder_mode(path_to_make), dir_fd=above)
    return os.open(name, _FOLDER, dir_fd=above)


def write_beside(
    folder: int, name: str, content: bytes, mode: int, *, sync: bool = False, is_new: bool = False
) -> tuple[int, str]:
    """Write a temporary file; return its descriptor, to close once it is renamed, and its name until then.

    `mode` is that of a file that replaces none.
    """
    announce("write", name)
    kept = None if is_new else kept_mode(folder, name)
    descriptor, temporary = open_temporary(folder, name, kept or mode)
    try:
        if kept is not None:
            os.fchmod(descriptor, kept)  # the umask took some of it
        write_all(descriptor, content)
        if sync:
            announce("sync", name)
            disk().sync(descriptor)
    except BaseException as error:
        # Anything but a refusal is the end of the process: then the file stays, as after a kill.
        if isinstance(error, OSError):
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
        os.close(descriptor)
        raise
    return descriptor, temporary


# --- openat2 -------------------------------------------------------------------------------------
# Linux's `openat2`: one call that opens a path and refuses every symbolic link on it. The walk takes a call a
# folder for that. Python has no function for it.


WORTHWHILE_AFTER = 1000
"""So many openings save what the import of `ctypes` costs; a command that writes little never pays it."""

_NUMBER = 437
_MACHINES = ("x86_64", "aarch64")  # elsewhere the call may have another number
_HERE = -100  # AT_FDCWD
_NO_SYMLINKS = 0x04

_openings = count()


def open_at_once(path: str, flags: int) -> int:
    """Return the descriptor of what stands at `path`, opened without following any link; nothing is made.

    Returns -1 when that cannot be had in one call, whatever the reason: then the caller walks.
    """
    if next(_openings) < WORTHWHILE_AFTER:
        return -1
    # 24 is the size of `struct open_how`.
    call = _system_call()
    return call(_NUMBER, _HERE, os.fsencode(path), _how(flags), 24) if call else -1


@cache
def _system_call() -> Callable[..., int] | None:
    """Return libc's `syscall`; None where the kernel, or a filter in front of it, has no openat2."""
    is_android = hasattr(sys, "getandroidapilevel")  # there a call that an app may not make ends the process
    if sys.platform != "linux" or is_android or os.uname().machine not in _MACHINES:
        return None
    import ctypes

    # The types are ctypes' own choice, which it makes sooner: the address of the bytes, and ints, whose sign
    # fills the register on both machines.
    call = ctypes.CDLL(None).syscall
    descriptor: int = call(_NUMBER, _HERE, b"/", _how(os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), 24)
    if descriptor < 0:
        return None
    os.close(descriptor)
    return call


@cache
def _how(flags: int) -> bytes:
    """Return the kernel's `struct open_how`: flags, mode, how to resolve."""
    return struct.pack("=QQQ", flags, 0, _NO_SYMLINKS)
