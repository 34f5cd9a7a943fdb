"""The only code that changes the disk.

A file is written beside the target and renamed into place, so a reader sees the old bytes or the new bytes.
Folders are walked with `O_NOFOLLOW` from a root the caller trusts: a symbolic link planted on the way is
refused, never followed. Every failure of the file system is a `DiskError` that names the file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from bisect import bisect_left
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from lemming.kernel.base.errors import DiskError
from lemming.kernel.files.descriptors import StatusPair, last_lines, read_limited, require_regular
from lemming.kernel.files.disk import current_disk, notify_observers, write_all
from lemming.kernel.files.disk import observe_changes as observe_changes
from lemming.kernel.files.disk_errors import raises_disk_error, require_about_one_file, write_error
from lemming.kernel.files.safe_folder import file_mode, open_parent, write_temporary

_APPEND = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # opening a pipe must not wait


def write_atomic(root: Path, relative: str, content: bytes, *, sync: bool = False, is_org: bool = True) -> None:
    """Write `content` to `root/relative` atomically; missing folders are created.

    Safe to repeat. The bytes survive a killed process; with `sync`, or after `sync_file_system`, they survive
    power loss. A replaced file keeps the mode. `is_org`: new files below `root` get the modes of
    `lemming.kernel.files.safe_folder`.
    """
    mode_path = relative if is_org else f"./{relative}"  # "./" matches no place of `file_modes`
    _replace(root, mode_path, content, file_mode(mode_path), sync=sync)
    if sync:
        _sync_name(root, relative)


def write_private(root: Path, relative: str, content: bytes) -> None:
    """Write `content` to `root/relative` outside any organisation, readable by the owner only."""
    make_root(root)
    _replace(root, f"./{relative}", content, 0o600, finish=lambda descriptor: os.fchmod(descriptor, 0o600))


def write_after_sync(root: Path, relative: str, content: bytes) -> None:
    """Write `content` to `root/relative` after everything below `root` has been made to survive power loss.

    One flush for both. After power loss, the file holds either the old or the new content, whole.
    """
    _replace(root, relative, content, file_mode(relative), finish=lambda _: sync_file_system(root))


def _replace(
    root: Path,
    relative: str,
    content: bytes,
    mode: int,
    *,
    sync: bool = False,
    finish: Callable[[int], object] = lambda _: None,
) -> None:
    """Write a temporary file, `finish` it, and rename it to `root/relative`."""
    with open_parent(root, relative) as (folder, name):
        descriptor, temporary = write_temporary(folder, name, content, mode, sync=sync)
        try:
            finish(descriptor)
            notify_observers("rename", relative, root)
            current_disk().rename(temporary, name, folder, folder)
        finally:
            os.close(descriptor)


def create(root: Path, relative: str, content: bytes, *, sync: bool = False) -> bool:
    """Create a file unless the path exists; return True if created. With `sync` it survives power loss."""
    with open_parent(root, relative) as (folder, name):
        descriptor, temporary = write_temporary(folder, name, content, file_mode(relative), sync=sync)
        try:
            notify_observers("link", relative, root)
            # `link` refuses a name that is taken, where `rename` would replace what has it.
            os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            return False
        finally:
            os.unlink(temporary, dir_fd=folder)
            os.close(descriptor)
    if sync:
        _sync_name(root, relative)
    return True


def remove(root: Path, relative: str, *, sync: bool = False) -> StatusPair | None:
    """Remove a file. Return the status of the folder before and after, or None if the file did not exist.

    With `sync`, the removal survives power loss.
    """
    try:
        with open_parent(root, relative, make=False) as (folder, name):
            status_before = os.fstat(folder)
            notify_observers("unlink", relative, root)
            os.unlink(name, dir_fd=folder)
            if sync:
                notify_observers("sync", relative)
                current_disk().sync_folder(folder)
            return status_before, os.fstat(folder)
    except DiskError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        return None


def move(root: Path, source: str, target: str) -> None:
    """Rename a file inside `root`; the target's folders are created."""
    with open_parent(root, source, make=False) as (old_folder, old), open_parent(root, target) as (new_folder, new):
        notify_observers("rename", target, root)
        current_disk().rename(old, new, old_folder, new_folder)


def remove_tree(root: Path, relative: str) -> None:
    """Remove a folder and the contents. Links inside are removed, not followed."""
    with open_parent(root, relative, make=False) as (folder, name):
        notify_observers("rmtree", relative, root)
        shutil.rmtree(name, dir_fd=folder)


def copy_tree(root: Path, source: str, destination: str) -> None:
    """Copy a folder and the contents inside `root`. Links inside stay links."""
    notify_observers("copytree", destination, root)
    try:
        shutil.copytree(root / source, root / destination, symlinks=True)
    except OSError as error:
        raise write_error(root, destination, error) from error


def move_durable(root: Path, source: str, target: str) -> None:
    """Move a file inside `root`. After power loss it exists in at least one of the places; safe to repeat."""
    with open_parent(root, source, make=False) as (old_folder, old), open_parent(root, target) as (new_folder, new):
        notify_observers("link", target, root)
        with contextlib.suppress(FileExistsError):  # an earlier attempt was cut short here
            os.link(old, new, src_dir_fd=old_folder, dst_dir_fd=new_folder, follow_symlinks=False)
    # The new name is on the disk before the old one goes.
    _sync_name(root, target)
    remove(root, source)


def make_folder(root: Path, relative: str) -> None:
    """Create a folder and the parents below `root`."""
    with open_parent(root, f"{relative}/."):
        pass


def make_root(root: Path) -> None:
    """Create the folder of a new organisation, and the parents."""
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(root, "", error) from error


def append(root: Path, relative: str, content: bytes) -> None:
    """Append bytes to a file, in one write if the system allows; the file is created if missing."""
    with AppendFile(root, relative) as file:
        file.append(content)


class AppendFile:
    """A file that only grows: the journal, a ledger. Readable too, to check the end.

    `initial_status`: the file's status when opened. `size`: in bytes, updated by changes through this object.
    """

    def __init__(self, root: Path, relative: str, *, mode: int | None = None) -> None:
        self._root, self._relative = root, relative
        try:
            self._descriptor, self.initial_status = _open_to_append(root, relative, mode)
        except OSError as error:
            raise write_error(root, relative, error) from error
        self.size = self.initial_status.st_size

    def __enter__(self) -> AppendFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _disk_errors(self) -> Iterator[None]:
        """Raise `DiskError` for a failed operation on the open file, whose path cannot be the cause."""
        try:
            yield
        except OSError as error:
            require_about_one_file(self._root / self._relative, error)
            raise write_error(self._root, self._relative, error) from error

    def read(self) -> bytes:
        """Return the whole content."""
        with self._disk_errors():
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            size = os.fstat(self._descriptor).st_size
            return read_limited(self._descriptor, size, size)

    def read_first(self, limit_bytes: int) -> bytes:
        """Return the first bytes."""
        with self._disk_errors():
            return os.pread(self._descriptor, limit_bytes, 0)

    def status(self) -> os.stat_result:
        """Return the current status of the file."""
        try:  # every turn passes here
            return os.fstat(self._descriptor)
        except OSError as error:
            require_about_one_file(self._root / self._relative, error)
            raise write_error(self._root, self._relative, error) from error

    def fileno(self) -> int:
        """Return the descriptor, for a kernel lock on the file."""
        return self._descriptor

    def read_tail(self, block_bytes: int, lines: int) -> bytes:
        """Return the end of the file, as the function `read_tail` does."""
        with self._disk_errors():
            return last_lines(self._descriptor, self.size, block_bytes, lines)

    def append(self, content: bytes) -> None:
        """Append bytes to the file."""
        try:
            notify_observers("append", self._relative)
            write_all(self._descriptor, content)
            self.size += len(content)
        except OSError as error:
            raise write_error(self._root, self._relative, error) from error

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        try:
            notify_observers("truncate", self._relative)
            current_disk().truncate(self._descriptor, size)
            self.size = size
        except OSError as error:
            raise write_error(self._root, self._relative, error) from error

    def restamp(self) -> os.stat_result:
        """Set the file's timestamps to the current time, and return the status. Raises `OSError` if refused."""
        current_disk().touch(self._descriptor)
        return self.status()

    def reserve(self, extra_bytes: int) -> None:
        """Raise an error now, rather than later, if the disk has no room for `extra_bytes` more."""
        with self._disk_errors():
            file_system = os.fstatvfs(self._descriptor)
        if file_system.f_bavail * file_system.f_frsize < extra_bytes:
            short = OSError(errno.ENOSPC, f"less than {extra_bytes >> 20} MiB free")
            raise write_error(self._root, self._relative, short) from short

    def sync(self) -> None:
        """Make everything appended so far survive power loss. A failed sync is never retried."""
        try:
            notify_observers("sync", self._relative)
            current_disk().sync(self._descriptor)
        except OSError as error:
            raise write_error(self._root, self._relative, error) from error

    def sync_name(self) -> None:
        """Make the file's name survive power loss: sync the folder and the parents, which may be new too."""
        _sync_name(self._root, self._relative)

    def close(self) -> None:
        """Close the descriptor; safe to repeat."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def sync_file_system(root: Path) -> None:
    """Make everything written below `root` survive power loss, in one call."""
    with open_parent(root, ".") as (folder, _):
        notify_observers("syncfs", ".")
        current_disk().sync_file_system(folder)


def _sync_name(root: Path, relative: str) -> None:
    for parent_path in PurePosixPath(relative).parents:
        with open_parent(root, f"{parent_path}/.") as (folder, _):
            notify_observers("sync", str(parent_path))
            current_disk().sync_folder(folder)


def _open_to_append(root: Path, relative: str, mode: int | None) -> tuple[int, os.stat_result]:
    """Return a regular file's descriptor and status; the file is created if missing."""
    with open_parent(root, relative) as (folder, name):
        notify_observers("open", relative)
        try:
            descriptor = os.open(name, _APPEND, dir_fd=folder)
        except FileNotFoundError:  # only a new file needs a mode
            new_mode = mode or file_mode(relative)
            descriptor = os.open(name, _APPEND | os.O_CREAT, new_mode, dir_fd=folder)
    try:
        return descriptor, require_regular(descriptor, relative)
    except BaseException:
        os.close(descriptor)
        raise


def read_bytes(path: str | os.PathLike[str], limit_bytes: int) -> bytes:
    """Return a regular file's bytes, at most `limit_bytes` + 1, which lets the caller detect the excess.

    Raises `OSError` about this file: not found, a link, a folder, a pipe. Any other failure raises
    `DiskError`.
    """
    return read_with_status(path, limit_bytes)[0]


def has_content(path: str | os.PathLike[str], content: bytes) -> bool:
    """Return True if a regular file has exactly these bytes."""
    try:
        return read_bytes(path, len(content)) == content
    except OSError:
        return False


@raises_disk_error
def read_with_status(path: str | os.PathLike[str], limit_bytes: int, *, start: int = 0) -> tuple[bytes, os.stat_result]:
    """Return a file's bytes from `start` on, as `read_bytes` does, with the status just before the read."""
    descriptor = os.open(path, _READ)
    try:
        status = require_regular(descriptor, os.fspath(path))
        os.lseek(descriptor, start, os.SEEK_SET)
        return read_limited(descriptor, limit_bytes + 1, max(0, status.st_size - start)), status
    finally:
        os.close(descriptor)


def read_tail(path: str | os.PathLike[str], block_bytes: int, lines: int) -> bytes:
    """Return the end of a file: whole lines, at least `lines` if the file has enough lines."""
    return read_tail_with_status(path, block_bytes, lines)[0]


@raises_disk_error
def read_tail_with_status(path: str | os.PathLike[str], block_bytes: int, lines: int) -> tuple[bytes, os.stat_result]:
    """Return the end of a file as `read_tail` does, and the file's status just before the read."""
    descriptor = os.open(path, _READ)
    try:
        status = require_regular(descriptor, os.fspath(path))
        return last_lines(descriptor, status.st_size, block_bytes, lines), status
    finally:
        os.close(descriptor)


@raises_disk_error
def list_names(path: str | os.PathLike[str]) -> list[str]:
    """Return a folder's visible names, sorted; an empty list if the folder is missing. A link is refused."""
    try:
        descriptor = os.open(path, _FOLDER)
    except FileNotFoundError:
        return []
    try:
        names = os.listdir(descriptor)
    finally:
        os.close(descriptor)
    names.sort()
    del names[bisect_left(names, ".") : bisect_left(names, "/")]  # "/" is the next character
    return names
