"""The only code that changes the disk.

A file is published by writing it beside its place and renaming it into place, so a reader sees the
old bytes or the new ones. Folders are walked with `O_NOFOLLOW` from a root that the caller trusts:
a symbolic link planted on the way is refused, never followed. Every refusal of the file system is a
`DiskError` that names the file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from lemming.disk import disk
from lemming.errors import DiskError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ROOT = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC

_HINTS = {
    errno.ENOSPC: "the disk is full; free space and run again, nothing is lost",
    errno.EDQUOT: "the disk quota is used up; free space and run again, nothing is lost",
    errno.EROFS: "the file system is read-only; make it writable and run again",
    errno.EACCES: "no permission; check the owner and the mode of this path",
    errno.EPERM: "no permission; check the owner and the mode of this path",
    errno.EMFILE: "too many open files; raise `ulimit -n` and run again",
    errno.ELOOP: "a symbolic link stands where a file or folder of the organisation should be; remove it",
    errno.ENOTDIR: "something that is not a folder stands where a folder should be; move it away",
    errno.EIO: "the disk reported an error; the journal is kept, check the disk before running again",
}
# Something is wrong with that one path, or with who may write it: not with the disk.
_ODD = frozenset({
    errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL, errno.EACCES, errno.EPERM
})  # fmt: skip

Mutation = Callable[[str, str], None]
_observers: list[Mutation] = []


@contextlib.contextmanager
def observed(observer: Mutation) -> Iterator[None]:
    """Call `observer(operation, path)` before every change of the disk, as long as the block runs.

    Crash tests raise from the observer to stop the world at that very point.
    """
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


# --- reading -----------------------------------------------------------------------------------


def read_bytes(path: str | os.PathLike[str], limit_bytes: int) -> bytes:
    """Return a regular file's bytes, at most `limit_bytes` + 1 of them (so the caller sees the excess).

    Raises `OSError`: not found, a link, a pipe, a folder. A pipe does not block.
    """
    descriptor = os.open(path, _READ)
    try:
        _require_regular(descriptor, os.fspath(path))
        return _read_up_to(descriptor, limit_bytes + 1)
    finally:
        os.close(descriptor)


def read_tail(path: str | os.PathLike[str], block_bytes: int, lines: int) -> bytes:
    """Return the end of a file, whole lines, at least `lines` of them where there are so many."""
    descriptor = os.open(path, _READ)
    try:
        size = _require_regular(descriptor, os.fspath(path)).st_size
        start = max(0, size - block_bytes)
        tail = os.pread(descriptor, size - start, start)
        while start and tail.count(b"\n") <= lines:
            step = min(start, len(tail))
            start -= step
            tail = os.pread(descriptor, step, start) + tail
        return tail[tail.find(b"\n") + 1 :] if start else tail
    finally:
        os.close(descriptor)


def list_names(path: str | os.PathLike[str]) -> list[str]:
    """Return the names in a folder, sorted, without hidden ones; empty when there is no such folder.

    A folder behind a symbolic link is refused with `OSError`.
    """
    try:
        descriptor = os.open(path, _FOLDER)
    except FileNotFoundError:
        return []
    try:
        return sorted(name for name in os.listdir(descriptor) if not name.startswith("."))
    finally:
        os.close(descriptor)


def _require_regular(descriptor: int, path: str) -> os.stat_result:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)
    return status


def _read_up_to(descriptor: int, count: int) -> bytes:
    chunks: list[bytes] = []
    while count > 0 and (chunk := os.read(descriptor, min(count, 1 << 20))):
        chunks.append(chunk)
        count -= len(chunk)
    return b"".join(chunks)


# --- writing -----------------------------------------------------------------------------------


def publish(root: Path, relative: str, content: bytes, *, sync: bool = False) -> None:
    """Put `content` at `root/relative`, all of it or nothing; folders on the way are made.

    Safe to repeat. The bytes survive a killed process; with `sync`, or after `sync_file_system`, they
    survive power loss.
    """
    with _parent(root, relative) as (folder, name):
        temporary = _write_beside(folder, name, content, sync=sync)
        _rename_beside(folder, temporary, name, relative)
        if sync:
            _announce("sync", relative)
            disk().sync_folder(folder)


def publish_last(root: Path, relative: str, content: bytes) -> None:
    """Put `content` at `root/relative` once all that was written below `root` survives power loss.

    One flush for both. After power loss the old content or the new may stand there, whole.
    """
    with _parent(root, relative) as (folder, name):
        temporary = _write_beside(folder, name, content)
        sync_file_system(root)
        _rename_beside(folder, temporary, name, relative)


def create(root: Path, relative: str, content: bytes) -> bool:
    """Put `content` at `root/relative` unless something is there; return whether it was written."""
    with _parent(root, relative) as (folder, name):
        # Two processes may try at once: each has a file of its own beside the place.
        temporary = _write_beside(folder, f"{name}.{os.getpid()}", content)
        try:
            _announce("link", relative)
            os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            return False
        finally:
            os.unlink(temporary, dir_fd=folder)
        return True


def remove(root: Path, relative: str) -> None:
    """Remove a file; nothing happens when it is not there."""
    try:
        with _parent(root, relative, make=False) as (folder, name):
            _announce("unlink", relative)
            os.unlink(name, dir_fd=folder)
    except DiskError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise


def move(root: Path, source: str, destination: str) -> None:
    """Rename a file inside `root`; the destination's folders are made."""
    with (
        _parent(root, source, make=False) as (old_folder, old),
        _parent(root, destination) as (new_folder, new),
    ):
        _announce("rename", destination)
        disk().rename(old, new, old_folder, new_folder)


def make_folder(root: Path, relative: str) -> None:
    """Make a folder and those above it, below `root`."""
    with _parent(root, f"{relative}/.", make=True):
        pass


def make_root(root: Path) -> None:
    """Make the folder of a new organisation, and those above it."""
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _refused(root, "", error) from error


def append(root: Path, relative: str, content: bytes) -> None:
    """Add bytes to the end of a file, in one write where the system allows; the file is made if need be."""
    with AppendFile(root, relative) as file:
        file.append(content)


class AppendFile:
    """A file that only grows: the journal, a ledger. Readable too, so that its end can be checked."""

    def __init__(self, root: Path, relative: str) -> None:
        self._root, self._relative = root, relative
        with _parent(root, relative) as (folder, name):
            _announce("open", relative)
            self._descriptor = _open_regular(name, folder)

    def __enter__(self) -> AppendFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self) -> bytes:
        """Return the whole content."""
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        return _read_up_to(self._descriptor, os.fstat(self._descriptor).st_size)

    def fileno(self) -> int:
        """Return the descriptor, for a kernel lock on it."""
        return self._descriptor

    @property
    def size(self) -> int:
        """The size in bytes."""
        return os.fstat(self._descriptor).st_size

    def read_end(self, count: int) -> bytes:
        """Return the last `count` bytes, or all when there are fewer."""
        size = self.size
        return os.pread(self._descriptor, min(count, size), max(0, size - count))

    def append(self, content: bytes) -> None:
        """Write at the end."""
        try:
            _announce("append", self._relative)
            _write_all(self._descriptor, content)
        except OSError as error:
            raise _refused(self._root, self._relative, error) from error

    def truncate(self, size: int) -> None:
        """Cut the file to its first `size` bytes."""
        try:
            _announce("truncate", self._relative)
            disk().truncate(self._descriptor, size)
        except OSError as error:
            raise _refused(self._root, self._relative, error) from error

    def reserve(self, extra_bytes: int) -> None:
        """Fail now rather than later if the disk has no room for `extra_bytes` more."""
        room = os.fstatvfs(self._descriptor)
        if room.f_bavail * room.f_frsize < extra_bytes:
            short = OSError(errno.ENOSPC, f"less than {extra_bytes >> 20} MiB left")
            raise _refused(self._root, self._relative, short) from short

    def sync(self) -> None:
        """Make everything appended so far survive power loss. A failed sync is never retried."""
        try:
            _announce("sync", self._relative)
            disk().sync(self._descriptor)
        except OSError as error:
            raise _refused(self._root, self._relative, error) from error

    def sync_name(self) -> None:
        """Make the file's name survive power loss: sync its folder and those above, which may be new too."""
        for above in PurePosixPath(self._relative).parents:
            with _parent(self._root, f"{above}/.") as (folder, _):
                _announce("sync", str(above))
                disk().sync_folder(folder)

    def close(self) -> None:
        """Give the descriptor back; safe to repeat."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def sync_file_system(root: Path) -> None:
    """Make everything written below `root` survive power loss, in one call."""
    with _parent(root, ".") as (folder, _):
        _announce("syncfs", ".")
        disk().sync_file_system(folder)


# --- the pieces --------------------------------------------------------------------------------


def _announce(operation: str, path: str) -> None:
    for observer in _observers:
        observer(operation, path)


def _refused(root: Path, relative: str, error: OSError) -> DiskError:
    hint = _HINTS.get(error.errno or 0, "check this path and run again")
    message = f"cannot write: {error.strerror or error}"
    return DiskError(message, where=str(root / relative), hint=hint, concerns_one_file=error.errno in _ODD)


class _parent:  # noqa: N801 - used like a function; a class costs a third of a generator here
    """Open the folder that holds `relative`, one component at a time: (descriptor, last name).

    Every `OSError` of the block is a `DiskError` that names the file.
    """

    def __init__(self, root: Path, relative: str, *, make: bool = True) -> None:
        self._root, self._relative, self._make = root, relative, make

    def __enter__(self) -> tuple[int, str]:
        try:
            self._folder, name = _open_parent(self._root, self._relative, self._make)
        except OSError as error:
            raise _refused(self._root, self._relative, error) from error
        return self._folder, name

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        os.close(self._folder)
        if isinstance(error, OSError):
            raise _refused(self._root, self._relative, error) from error


def _open_parent(root: Path, relative: str, make: bool) -> tuple[int, str]:
    *folders, name = relative.split("/")
    if ".." in folders or name == ".." or relative.startswith("/") or "\0" in relative:
        raise OSError(errno.EINVAL, "not a path below the root", relative)
    descriptor = os.open(root, _ROOT)
    try:
        for folder in folders:
            inner = _open_folder(folder, descriptor, make)
            os.close(descriptor)
            descriptor = inner
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, name


def _open_folder(name: str, above: int, make: bool) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=above)
    except FileNotFoundError:
        if not make:
            raise
    _announce("mkdir", name)
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o755, dir_fd=above)
    return os.open(name, _FOLDER, dir_fd=above)


def _open_regular(name: str, folder: int) -> int:
    descriptor = os.open(name, _APPEND, 0o644, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", name)
    return descriptor


def _write_beside(folder: int, name: str, content: bytes, *, sync: bool = False) -> str:
    temporary = f".{os.fsdecode(os.fsencode(name)[:200])}.tmp"  # no name may have more than 255 bytes
    _announce("write", name)
    try:
        descriptor = os.open(temporary, _CREATE, 0o644, dir_fd=folder)
    except FileExistsError:  # what an earlier crash left
        os.unlink(temporary, dir_fd=folder)
        descriptor = os.open(temporary, _CREATE, 0o644, dir_fd=folder)
    try:
        _write_all(descriptor, content)
        if sync:
            _announce("sync", name)
            disk().sync(descriptor)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    finally:
        os.close(descriptor)
    return temporary


def _rename_beside(folder: int, temporary: str, name: str, relative: str) -> None:
    _announce("rename", relative)
    disk().rename(temporary, name, folder, folder)


def _write_all(descriptor: int, content: bytes) -> None:
    written = disk().write(descriptor, content)
    while written < len(content):
        written += disk().write(descriptor, content[written:])
