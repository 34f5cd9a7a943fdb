"""Files an agent may touch, opened so that the kernel decides and no string does.

A place is walked from the granted folder with `O_NOFOLLOW`: a symbolic link is refused wherever it
stands, and nothing is checked first and opened later. What a turn has staged is seen as if it were on
the disk.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from hashlib import file_digest, sha256
from pathlib import Path

from lemming.kernel.access import mounts
from lemming.kernel.access.allowed_paths import NEVER_OPEN, Place, refuse_engines, resolve
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ToolError
from lemming.kernel.files import quota
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.files.quota import FolderSize
from lemming.kernel.files.refusals import looking, require_about_one_file
from lemming.kernel.files.stamps import is_there, status_of

Identity = tuple[int, int]
Removed = Collection[str]
"""Places, as `FileEffect.place`, whose files this turn takes away."""
NOTHING_REMOVED: Removed = ()

FILE_LIMIT_BYTES = 256 << 10
LISTING_LIMIT = 1000

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ROOT = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def read_allowed_text(agent: Agent, base: Path, path: str, *, caller: str = "context") -> str:
    """Return the text of a file the agent may read; raise `PermissionDenied` or `ToolError`."""
    return read_text(resolve(agent, base, path, "read", caller=caller), {})


def read_text(place: Place, staged: Mapping[str, bytes], removed: Removed = NOTHING_REMOVED) -> str:
    """Return the text of a file, as this turn sees it. Raises `PermissionDenied` or `ToolError`."""
    raw = read_raw(place, staged, removed)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise place.asked.failed(f"is not UTF-8 text (at byte {error.start})") from error


def is_there_to_read(place: Place, staged: Mapping[str, bytes]) -> bool:
    """Return whether anything stands at a place of the organisation, as this turn sees it."""
    is_staged = any(f"{path}/".startswith(f"{place.key}/") for path in staged)
    return is_staged or is_there(f"{place.base}/{place.relative}")


def read_raw(
    place: Place,
    staged: Mapping[str, bytes],
    removed: Removed = NOTHING_REMOVED,
    *,
    limit_bytes: int = FILE_LIMIT_BYTES,
) -> bytes:
    """Return the bytes of a file, as this turn sees it. Raises as `read_text`."""
    if place.key in removed:
        raise place.asked.missing()
    raw = staged[place.key] if place.key in staged else _read_bytes(place, limit_bytes)
    if len(raw) > limit_bytes:
        raise place.asked.failed(f"is larger than the {limit_bytes} bytes that can be read")
    return raw


def seen_content(place: Place, staged: Mapping[str, bytes]) -> str | None:
    """Return the SHA-256 of a file, in hex; None where there is none that the agent may read."""
    with contextlib.suppress(ToolError):
        return file_digest_of(place, staged)
    return None


def file_digest_of(place: Place, staged: Mapping[str, bytes], removed: Removed = NOTHING_REMOVED) -> str:
    """Return the SHA-256 of a file of any size, in hex, as this turn sees it. Raises as `read_text`."""
    if place.key in removed:
        raise place.asked.missing()
    if place.key in staged:
        return sha256(staged[place.key]).hexdigest()
    with _opened_file(place) as descriptor, open(descriptor, "rb", closefd=False) as file:
        return file_digest(file, "sha256").hexdigest()


def list_folder(
    place: Place, staged: Mapping[str, bytes], removed: Removed = NOTHING_REMOVED
) -> tuple[list[str], int]:
    """Return the first names of a folder, sorted, and how many more there are; as this turn sees it.

    Folders end with `/`, symbolic links with `@`. Raises `PermissionDenied` or `ToolError`.
    """
    names = {_printable(name) + mark for name, mark in scan_folder(place, staged, removed).items()}
    shown = heapq.nsmallest(LISTING_LIMIT, names)
    return shown, len(names) - len(shown)


def scan_folder(
    place: Place, staged: Mapping[str, bytes], removed: Removed = NOTHING_REMOVED
) -> dict[str, str]:
    """Return the names in a folder, each with `/` for a folder, `@` for a symbolic link, else nothing.

    As this turn sees it. Raises as `list_folder`.
    """
    names = _staged_names(place, staged)
    try:
        with _opened_folder(place, place.parts) as folder:
            there = _marks_in(folder)
            names |= {name: mark for name, mark in there.items() if f"{place.key}/{name}" not in removed}
    except FileNotFoundError as error:
        if not names and not place.is_granted_folder:
            raise place.asked.missing(is_folder=True) from error
    return names


def _marks_in(folder: int) -> dict[str, str]:
    with os.scandir(folder) as entries:
        return {entry.name: _mark(entry) for entry in entries}


def write_effect(
    place: Place,
    content: bytes,
    staged: Mapping[str, bytes],
    *,
    limits: FolderSize,
    removed: Removed = NOTHING_REMOVED,
    limit_bytes: int = FILE_LIMIT_BYTES,
) -> FileEffect:
    """Return the effect that writes a file; raise `PermissionDenied` or `ToolError` when it may not be.

    Folders on the way are walked now, and again, just as strictly, when the effect is applied. `limits` is
    what a workspace or `shared/` may hold.
    """
    if len(content) > limit_bytes:
        raise place.asked.failed(f"would have {len(content)} bytes; at most {limit_bytes} are allowed")
    *folders, name = place.parts
    if any(key.startswith(f"{place.key}/") for key in staged):
        raise place.asked.failed("is a folder")
    if any(place.key.startswith(f"{key}/") for key in staged):
        raise place.asked.failed("lies below a file, not a folder")
    with contextlib.suppress(FileNotFoundError), _opened_folder(place, folders) as folder:
        status = status_of(name, folder)
        _refuse_target(place, status)
        _refuse_identity(place, status, _forbidden(place))
    effect = FileEffect(place.relative, content, place.effect_root)
    if not place.effect_root:
        _refuse_beyond(place, {**staged, effect.place: content}, limits, removed)
    return effect


def remove_effect(place: Place, staged: Mapping[str, bytes]) -> FileEffect:
    """Return the effect that takes away a file that has been read. Raises as `read_text`."""
    seen = (seen_content(place, staged), seen_content(place, {}))
    digests = tuple(sorted({digest for digest in seen if digest is not None}))
    if not digests:
        raise place.asked.missing()
    return FileEffect(place.relative, b"", place.effect_root, digests)


def is_taken(place: Place, staged: Mapping[str, bytes], removed: Removed = NOTHING_REMOVED) -> bool:
    """Return whether anything stands at a place, as this turn sees it. Raises as `read_text`."""
    if place.key in removed:
        return False
    if place.key in staged:
        return True
    *folders, name = place.parts or ["."]
    try:
        with _opened_folder(place, folders) as folder:
            status_of(name, folder)
    except FileNotFoundError:
        return False
    return True


def _refuse_beyond(place: Place, staged: Mapping[str, bytes], limits: FolderSize, removed: Removed) -> None:
    """Raise if what is staged would make its folder hold more than it may.

    The folder is the workspace, `shared/`, or what is granted of it: what others, who may be writing at the
    same time, do elsewhere has no part in the answer.
    """
    parts = place.parts
    top = 3 if parts[0] == "agents" else 1
    folder = "/".join(parts[: max(top, len(place.granted))])
    usage = _measure(f"{place.base}/{folder}")
    bytes_more = files_more = 0
    for path, content in staged.items():
        if path.startswith(f"{folder}/"):
            try:
                bytes_more += len(content) - status_of(f"{place.base}/{path}").st_size
            except OSError:
                bytes_more, files_more = bytes_more + len(content), files_more + 1
    for path in removed:
        if path.startswith(f"{folder}/") and path not in staged:
            with contextlib.suppress(OSError):
                bytes_more -= status_of(f"{place.base}/{path}").st_size
                files_more -= 1
    if bytes_more <= 0 and files_more <= 0:
        return
    after = usage._replace(size_bytes=usage.size_bytes + bytes_more, files=usage.files + files_more)
    if why := after._replace(depth=0, closed=0).beyond(limits):
        raise place.asked.failed(f"cannot be written: {folder} would hold {why}")


@looking
def _measure(folder: str) -> FolderSize:
    return quota.measure(folder)


# --- the walk -----------------------------------------------------------------------------------


@contextlib.contextmanager
def _opened_folder(place: Place, folders: list[str]) -> Iterator[int]:
    """Open a folder one component at a time; raise `FileNotFoundError` when one is not there."""
    try:
        with _walked(place, folders) as descriptor:
            yield descriptor
    except FileNotFoundError:
        raise
    except OSError as error:
        _require_its_own_trouble(place, error)
        raise place.asked.failed(f"cannot be looked at: {error.strerror}") from error


@contextlib.contextmanager
def _walked(place: Place, folders: list[str]) -> Iterator[int]:
    forbidden, is_written = _forbidden(place), place.asked.access == "write"
    try:
        descriptor = os.open(place.root, _ROOT)
    except OSError as error:
        _require_its_own_trouble(place, error)
        raise place.asked.failed(f"cannot be reached: {place.root}: {error.strerror}") from error
    try:
        if place.root != place.base:
            _refuse_ancestors(place, descriptor, forbidden)
            if is_written:
                _refuse_other_name(place, descriptor, place.parts)
        mount = mounts.mount_of(descriptor) if is_written else 0
        for depth, name in enumerate(folders, 1):
            inner = _open(place, name, descriptor, _FOLDER)
            os.close(descriptor)
            descriptor = inner
            _refuse_identity(place, os.fstat(descriptor), forbidden)
            if is_written and mount != (mount := mounts.mount_of(descriptor)):
                _refuse_other_name(place, descriptor, place.parts[depth:])
        yield descriptor
    finally:
        os.close(descriptor)


def _open(place: Place, name: str, folder: int, flags: int) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        raise
    except OSError as error:
        _require_its_own_trouble(place, error)
        raise _unopened(place, name, folder, error) from error


def _require_its_own_trouble(place: Place, error: OSError) -> None:
    """Raise `DiskError` for a refusal not about the file; elsewhere only where this process is short."""
    if place.root == place.base or error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        require_about_one_file(place.key, error)


def _unopened(place: Place, name: str, folder: int, error: OSError) -> ToolError:
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except OSError:
        mode = 0
    if stat.S_ISLNK(mode):
        return place.asked.refused(f'"{name}" is a symbolic link')
    if error.errno == errno.ENOTDIR:
        return place.asked.failed(f'cannot be reached: "{name}" is not a folder')
    return place.asked.failed(f"cannot be opened: {error.strerror}")


def _forbidden(place: Place) -> dict[Identity, str]:
    """Return folders that are closed whatever path leads to them, by device and inode.

    A grant may reach the organisation under another name (a bind mount, a volume that ignores case).
    """
    folders = ["/proc"]
    if not place.granted:  # the grant is of a folder above: what an agent is tried with is not for it to see
        folders.append(str(place.base / paths.EVALS))
    if place.asked.access == "write":
        folders += [str(place.base / name) for name in sorted(NEVER_OPEN)]
        if place.root != place.base:
            folders.append(str(place.base / "agents"))
    found = {}
    for folder in folders:
        try:
            status = os.stat(folder)
        except OSError as error:
            require_about_one_file(folder, error)
        else:
            found[status.st_dev, status.st_ino] = folder
    return found


def _refuse_identity(place: Place, status: os.stat_result, forbidden: dict[Identity, str]) -> None:
    if closed := forbidden.get((status.st_dev, status.st_ino)):
        raise place.asked.refused(f"{closed} is closed to agents")


def _refuse_other_name(place: Place, descriptor: int, rest: list[str]) -> None:
    """Raise if a folder just entered is a mount of one in the organisation, and `rest` is closed there."""
    here = mounts.origin_of(descriptor)
    folder = os.open(place.base, _ROOT)
    try:
        org = mounts.origin_of(folder)
    finally:
        os.close(folder)
    if here is None or org is None or here.device != org.device:
        return
    if here.parts[: len(org.parts)] == org.parts:
        refuse_engines(place.asked, (*here.parts[len(org.parts) :], *rest))


def _refuse_ancestors(place: Place, descriptor: int, forbidden: dict[Identity, str]) -> None:
    """Walk up from a granted folder to `/`; raise if it lies inside a closed one."""
    above, status = os.dup(descriptor), os.fstat(descriptor)
    try:
        while True:
            _refuse_identity(place, status, forbidden)
            parent = os.open("..", _ROOT, dir_fd=above)
            os.close(above)
            above, below, status = parent, status, os.fstat(parent)
            if os.path.samestat(below, status):
                return
    finally:
        os.close(above)


def _read_bytes(place: Place, limit_bytes: int) -> bytes:
    with _opened_file(place) as descriptor:
        size = os.fstat(descriptor).st_size
        if size > limit_bytes:
            raise place.asked.failed(f"has {size} bytes; at most {limit_bytes} can be read")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(limit_bytes + 1)


@contextlib.contextmanager
def _opened_file(place: Place) -> Iterator[int]:
    """Open a regular file for reading; raise `PermissionDenied` or `ToolError`."""
    *folders, name = place.parts or ["."]
    try:
        with _opened_folder(place, folders) as folder:
            descriptor = _open(place, name, folder, _FILE)
    except FileNotFoundError as error:
        raise place.asked.missing() from error
    try:
        _refuse_target(place, os.fstat(descriptor))
        yield descriptor
    except OSError as error:
        _require_its_own_trouble(place, error)
        raise place.asked.failed(f"cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)


def _refuse_target(place: Place, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise place.asked.refused("it is a symbolic link")
    if stat.S_ISDIR(status.st_mode):
        raise place.asked.failed("is a folder")
    if not stat.S_ISREG(status.st_mode):
        raise place.asked.refused("it is not a regular file")
    if status.st_nlink > 1:  # the other name may lie anywhere
        raise place.asked.refused("linked file: it has another name elsewhere")


def _staged_names(place: Place, staged: Mapping[str, bytes]) -> dict[str, str]:
    prefix = f"{place.key}/"
    below = (key.removeprefix(prefix).split("/") for key in staged if key.startswith(prefix))
    return {name: "/" if deeper else "" for name, *deeper in below}


def _mark(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "@"
    return "/" if entry.is_dir(follow_symlinks=False) else ""


def _printable(name: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in name)
