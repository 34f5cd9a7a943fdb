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
import shutil
from bisect import bisect_left
from pathlib import Path, PurePosixPath

from lemming.kernel.base.errors import DiskError
from lemming.kernel.files.descriptors import Around, last_lines, read_up_to, require_regular
from lemming.kernel.files.disk import announce, disk, write_all
from lemming.kernel.files.disk import observed as observed
from lemming.kernel.files.folder import open_at_once, parent, write_beside
from lemming.kernel.files.modes import file_mode
from lemming.kernel.files.refusals import looking, refused, require_about_one_file, require_below

_APPEND = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


# --- writing -----------------------------------------------------------------------------------


def publish(root: Path, relative: str, content: bytes, *, sync: bool = False, is_org: bool = True) -> None:
    """Put `content` at `root/relative`, all of it or nothing; folders on the way are made.

    Safe to repeat. The bytes survive a killed process; with `sync`, or after `sync_file_system`, they
    survive power loss. A file that is replaced keeps its mode; `is_org`: new ones below `root` get those of
    `lemming.kernel.files.modes`.
    """
    place = relative if is_org else f"./{relative}"  # which is none of the places that `modes` knows
    with parent(root, place) as (folder, name):
        descriptor, temporary = write_beside(folder, name, content, file_mode(place), sync=sync)
        try:
            announce("rename", place, root)
            disk().rename(temporary, name, folder, folder)
        finally:
            os.close(descriptor)
    if sync:
        _sync_name(root, relative)


def publish_private(root: Path, relative: str, content: bytes) -> None:
    """Put `content` at `root/relative`, which is no organisation's, for nobody but its owner to read."""
    make_root(root)
    with parent(root, f"./{relative}") as (folder, name):
        descriptor, temporary = write_beside(folder, name, content, 0o600)
        try:
            os.fchmod(descriptor, 0o600)
            announce("rename", relative, root)
            disk().rename(temporary, name, folder, folder)
        finally:
            os.close(descriptor)


def publish_last(root: Path, relative: str, content: bytes) -> None:
    """Put `content` at `root/relative` once all that was written below `root` survives power loss.

    One flush for both. After power loss the old content or the new may stand there, whole.
    """
    with parent(root, relative) as (folder, name):
        descriptor, temporary = write_beside(folder, name, content, file_mode(relative))
        try:
            sync_file_system(root)
            announce("rename", relative, root)
            disk().rename(temporary, name, folder, folder)
        finally:
            os.close(descriptor)


def create(root: Path, relative: str, content: bytes, *, sync: bool = False) -> bool:
    """Put `content` there unless something is; return whether it was. With `sync` it survives power loss."""
    with parent(root, relative) as (folder, name):
        descriptor, temporary = write_beside(folder, name, content, file_mode(relative), sync=sync)
        try:
            announce("link", relative, root)
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


def remove(root: Path, relative: str, *, sync: bool = False) -> Around | None:
    """Remove a file, and return what `stat` says of its folder; None, and nothing, when it is not there.

    With `sync` it stays removed after power loss.
    """
    try:
        with parent(root, relative, make=False) as (folder, name):
            before = os.fstat(folder)
            announce("unlink", relative, root)
            os.unlink(name, dir_fd=folder)
            if sync:
                announce("sync", relative)
                disk().sync_folder(folder)
            return before, os.fstat(folder)
    except DiskError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        return None


def move(root: Path, source: str, destination: str) -> None:
    """Rename a file inside `root`; the destination's folders are made."""
    with (
        parent(root, source, make=False) as (old_folder, old),
        parent(root, destination) as (new_folder, new),
    ):
        announce("rename", destination, root)
        disk().rename(old, new, old_folder, new_folder)


def remove_tree(root: Path, relative: str) -> None:
    """Remove a folder with all that is in it. Links in it are removed, not followed."""
    with parent(root, relative, make=False) as (folder, name):
        announce("rmtree", relative, root)
        shutil.rmtree(name, dir_fd=folder)


def copy_tree(root: Path, source: str, destination: str) -> None:
    """Copy a folder inside `root` with all that is in it. Links in it stay links."""
    announce("copytree", destination, root)
    try:
        shutil.copytree(root / source, root / destination, symlinks=True)
    except OSError as error:
        raise refused(root, destination, error) from error


def move_surely(root: Path, source: str, destination: str) -> None:
    """Move a file inside `root` so that power loss leaves it in one of the places at least; repeatable."""
    with (
        parent(root, source, make=False) as (old_folder, old),
        parent(root, destination) as (new_folder, new),
    ):
        announce("link", destination, root)
        with contextlib.suppress(FileExistsError):  # it was cut short after this
            os.link(old, new, src_dir_fd=old_folder, dst_dir_fd=new_folder, follow_symlinks=False)
    # The new name is on the disk before the old one goes.
    _sync_name(root, destination)
    remove(root, source)


def make_folder(root: Path, relative: str) -> None:
    """Make a folder and those above it, below `root`."""
    with parent(root, f"{relative}/.", make=True):
        pass


def make_root(root: Path) -> None:
    """Make the folder of a new organisation, and those above it."""
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise refused(root, "", error) from error


def append(root: Path, relative: str, content: bytes) -> None:
    """Add bytes to the end of a file, in one write where the system allows; the file is made if need be."""
    with AppendFile(root, relative) as file:
        file.append(content)


class AppendFile:
    """A file that only grows: the journal, a ledger. Readable too, so that its end can be checked.

    `opened`: what `stat` said then. `size`: in bytes, with what was changed through here since.
    """

    def __init__(self, root: Path, relative: str, *, mode: int | None = None) -> None:
        self._root, self._relative = root, relative
        try:
            self._descriptor, self.opened = _open_to_append(root, relative, mode)
        except OSError as error:
            raise refused(root, relative, error) from error
        self.size = self.opened.st_size

    def __enter__(self) -> AppendFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self) -> bytes:
        """Return the whole content."""
        try:
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            size = os.fstat(self._descriptor).st_size
            return read_up_to(self._descriptor, size, size)
        except OSError as error:
            raise self._refused(error) from error

    def read_first(self, limit_bytes: int) -> bytes:
        """Return the first bytes."""
        try:
            return os.pread(self._descriptor, limit_bytes, 0)
        except OSError as error:
            raise self._refused(error) from error

    def status(self) -> os.stat_result:
        """Return what `stat` says now."""
        try:
            return os.fstat(self._descriptor)
        except OSError as error:
            raise self._refused(error) from error

    def fileno(self) -> int:
        """Return the descriptor, for a kernel lock on it."""
        return self._descriptor

    def read_tail(self, block_bytes: int, lines: int) -> bytes:
        """Return the end of the file as `read_tail` does."""
        try:
            return last_lines(self._descriptor, self.size, block_bytes, lines)
        except OSError as error:
            raise self._refused(error) from error

    def _refused(self, error: OSError) -> DiskError:
        """Return the error of a refusal: the file is open, so none is about what stands there."""
        require_about_one_file(self._root / self._relative, error)
        return refused(self._root, self._relative, error)

    def append(self, content: bytes) -> None:
        """Write at the end."""
        try:
            announce("append", self._relative)
            write_all(self._descriptor, content)
            self.size += len(content)
        except OSError as error:
            raise refused(self._root, self._relative, error) from error

    def truncate(self, size: int) -> None:
        """Cut the file to its first `size` bytes."""
        try:
            announce("truncate", self._relative)
            disk().truncate(self._descriptor, size)
            self.size = size
        except OSError as error:
            raise refused(self._root, self._relative, error) from error

    def restamp(self) -> os.stat_result:
        """Stamp the file with the present time, and return what `stat` says; raise `OSError` when refused."""
        disk().touch(self._descriptor)
        try:
            return os.fstat(self._descriptor)
        except OSError as error:
            raise self._refused(error) from error

    def reserve(self, extra_bytes: int) -> None:
        """Fail now rather than later if the disk has no room for `extra_bytes` more."""
        try:
            room = os.fstatvfs(self._descriptor)
        except OSError as error:
            raise self._refused(error) from error
        if room.f_bavail * room.f_frsize < extra_bytes:
            short = OSError(errno.ENOSPC, f"less than {extra_bytes >> 20} MiB left")
            raise refused(self._root, self._relative, short) from short

    def sync(self) -> None:
        """Make everything appended so far survive power loss. A failed sync is never retried."""
        try:
            announce("sync", self._relative)
            disk().sync(self._descriptor)
        except OSError as error:
            raise refused(self._root, self._relative, error) from error

    def sync_name(self) -> None:
        """Make the file's name survive power loss: sync its folder and those above, which may be new too."""
        _sync_name(self._root, self._relative)

    def close(self) -> None:
        """Give the descriptor back; safe to repeat."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def sync_file_system(root: Path) -> None:
    """Make everything written below `root` survive power loss, in one call."""
    with parent(root, ".") as (folder, _):
        announce("syncfs", ".")
        disk().sync_file_system(folder)


# --- the pieces --------------------------------------------------------------------------------


def _sync_name(root: Path, relative: str) -> None:
    for above in PurePosixPath(relative).parents:
        with parent(root, f"{above}/.") as (folder, _):
            announce("sync", str(above))
            disk().sync_folder(folder)


def _open_to_append(root: Path, relative: str, mode: int | None) -> tuple[int, os.stat_result]:
    """Return a regular file's descriptor and its status; the file is made if need be."""
    require_below(relative)
    descriptor = open_at_once(f"{root}/{relative}", _APPEND)
    if is_new := descriptor < 0:
        with parent(root, relative) as (folder, name):
            announce("open", relative)
            try:
                descriptor = os.open(name, _APPEND, dir_fd=folder)
            except FileNotFoundError:  # only now the system is asked what a new file may be
                made = mode or file_mode(relative)
                descriptor = os.open(name, _APPEND | os.O_CREAT, made, dir_fd=folder)
    try:
        if not is_new:
            announce("open", relative)
        return descriptor, require_regular(descriptor, relative)
    except BaseException:
        os.close(descriptor)
        raise


# --- reading -------------------------------------------------------------------------------------
# A link is refused, and so is what is no file.


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # opening a pipe must not wait


def read_bytes(path: str | os.PathLike[str], limit_bytes: int) -> bytes:
    """Return a regular file's bytes, at most `limit_bytes` + 1 of them (so the caller sees the excess).

    Raises `OSError` about this file: not found, a link, a folder, a pipe. Any other refusal: `DiskError`.
    """
    return read_with_status(path, limit_bytes)[0]


def holds(path: str | os.PathLike[str], content: bytes) -> bool:
    """Return whether a regular file holds these bytes and no others."""
    try:
        return read_bytes(path, len(content)) == content
    except OSError:
        return False


@looking
def read_with_status(
    path: str | os.PathLike[str], limit_bytes: int, *, start: int = 0
) -> tuple[bytes, os.stat_result]:
    """Return a file's bytes from `start` on as `read_bytes` does, and its status just before that."""
    descriptor = os.open(path, _READ)
    try:
        status = require_regular(descriptor, os.fspath(path))
        os.lseek(descriptor, start, os.SEEK_SET)
        return read_up_to(descriptor, limit_bytes + 1, max(0, status.st_size - start)), status
    finally:
        os.close(descriptor)


def read_tail(path: str | os.PathLike[str], block_bytes: int, lines: int) -> bytes:
    """Return the end of a file, whole lines, at least `lines` of them where there are so many."""
    return read_tail_with_status(path, block_bytes, lines)[0]


@looking
def read_tail_with_status(
    path: str | os.PathLike[str], block_bytes: int, lines: int
) -> tuple[bytes, os.stat_result]:
    """Return the end of a file as `read_tail` does, and the file's status just before it was read."""
    descriptor = os.open(path, _READ)
    try:
        status = require_regular(descriptor, os.fspath(path))
        return last_lines(descriptor, status.st_size, block_bytes, lines), status
    finally:
        os.close(descriptor)


@looking
def list_names(path: str | os.PathLike[str]) -> list[str]:
    """Return a folder's names, sorted, without hidden ones; none when it is not there. A link is refused."""
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
