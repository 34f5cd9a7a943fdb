"""Files of agents, opened with kernel checks instead of string checks.

A path is walked from the granted folder with `O_NOFOLLOW`: a symbolic link is refused anywhere on the way,
and no check is separate from the opening. A turn's staged files are visible as if already on the disk.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from lemming.kernel.access.allowed_paths import NEVER_OPEN, AllowedPath, require_agent_writable
from lemming.kernel.base import paths
from lemming.kernel.files import quota
from lemming.kernel.files.disk_errors import raises_disk_error, require_about_one_file
from lemming.kernel.files.file_effects import FileEffect
from lemming.kernel.files.quota import FolderSize
from lemming.kernel.files.stat_cache import lstat

Removed = Collection[str]
"""Paths (`FileEffect.path_key`) of files that this turn removes."""
NOTHING_REMOVED: Removed = ()

FILE_LIMIT_BYTES = 256 << 10

_Identity = tuple[int, int]
_ROOT = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: a pipe that somebody made in a workspace must not make the engine wait.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def read_text(target: AllowedPath, staged: Mapping[str, bytes], removed: Removed = NOTHING_REMOVED) -> str:
    """Return the text of a file, as this turn sees it. Raises `PermissionDenied` or `ToolError`."""
    raw = read_raw(target, staged, removed)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise target.attempt.to_tool_error(f"is not UTF-8 text (at byte {error.start})") from error


def read_raw(
    target: AllowedPath,
    staged: Mapping[str, bytes],
    removed: Removed = NOTHING_REMOVED,
    *,
    limit_bytes: int = FILE_LIMIT_BYTES,
) -> bytes:
    """Return the bytes of a file, as this turn sees it. Raises the same errors as `read_text`."""
    if target.path_key in removed:
        raise target.attempt.missing()
    if target.path_key in staged:
        raw = staged[target.path_key]
    else:
        with open_target_file(target) as descriptor:
            size = os.fstat(descriptor).st_size
            if size > limit_bytes:
                raise target.attempt.to_tool_error(f"has {size} bytes; at most {limit_bytes} can be read")
            with open(descriptor, "rb", closefd=False) as file:
                raw = file.read(limit_bytes + 1)  # one too many, so that growth since the look at its size shows
    if len(raw) > limit_bytes:
        raise target.attempt.to_tool_error(f"is larger than the {limit_bytes} bytes that can be read")
    return raw


def scan_folder(target: AllowedPath, staged: Mapping[str, bytes], removed: Removed = NOTHING_REMOVED) -> dict[str, str]:
    """Return the names in a folder as this turn sees it. Marks: `/` for a folder, `@` for a link, else empty."""
    prefix = f"{target.path_key}/"
    relative_parts = (key.removeprefix(prefix).split("/") for key in staged if key.startswith(prefix))
    names = {name: "/" if deeper else "" for name, *deeper in relative_parts}
    try:
        with open_target_folder(target, target.parts) as folder, os.scandir(folder) as entries:
            for entry in entries:
                if f"{target.path_key}/{entry.name}" not in removed:
                    mark = "/" if entry.is_dir(follow_symlinks=False) else ""
                    names[entry.name] = "@" if entry.is_symlink() else mark
    except FileNotFoundError as error:
        if not names and not target.is_granted_folder:
            raise target.attempt.missing(is_folder=True) from error
    return names


def write_effect(
    target: AllowedPath,
    content: bytes,
    staged: Mapping[str, bytes],
    *,
    limits: FolderSize,
    removed: Removed = NOTHING_REMOVED,
    limit_bytes: int = FILE_LIMIT_BYTES,
) -> FileEffect:
    """Return an effect writing a file. Raise `PermissionDenied` or `ToolError` if writing is not allowed.

    The parent folders are walked now, and again, just as strictly, when the effect is applied. `limits`: the
    quota of a workspace or of `shared/`.
    """
    if len(content) > limit_bytes:
        raise target.attempt.to_tool_error(f"would have {len(content)} bytes; at most {limit_bytes} are allowed")
    *folders, name = target.parts
    if any(key.startswith(f"{target.path_key}/") for key in staged):
        raise target.attempt.to_tool_error("is a folder")
    if any(target.path_key.startswith(f"{key}/") for key in staged):
        raise target.attempt.to_tool_error("lies below a file, not a folder")
    with contextlib.suppress(FileNotFoundError), open_target_folder(target, folders) as folder:
        status = lstat(name, folder)
        _refuse_target(target, status)
        _refuse_identity(target, status, _forbidden_folders(target))
    effect = FileEffect(target.relative, content, target.effect_root)
    if not target.effect_root:
        _enforce_quota(target, {**staged, effect.path_key: content}, limits, removed)
    return effect


def _enforce_quota(target: AllowedPath, staged: Mapping[str, bytes], limits: FolderSize, removed: Removed) -> None:
    """Raise an error if the staged files would exceed the quota of their folder.

    The folder is the workspace, `shared/`, or the granted part of it. Concurrent writes of other agents
    elsewhere have no influence on the result.
    """
    parts = target.parts
    top = 3 if parts[0] == "agents" else 1
    folder = "/".join(parts[: max(top, len(target.granted))])
    usage = raises_disk_error(quota.measure)(f"{target.base}/{folder}")
    bytes_more = files_more = 0
    for path, content in staged.items():
        if path.startswith(f"{folder}/"):
            try:
                bytes_more += len(content) - lstat(f"{target.base}/{path}").st_size
            except OSError:
                bytes_more, files_more = bytes_more + len(content), files_more + 1
    for path in removed:
        if path.startswith(f"{folder}/") and path not in staged:
            with contextlib.suppress(OSError):
                bytes_more -= lstat(f"{target.base}/{path}").st_size
                files_more -= 1
    # A folder over its quota may shrink, or nobody could tidy it up.
    if bytes_more <= 0 and files_more <= 0:
        return
    new_usage = usage._replace(size_bytes=usage.size_bytes + bytes_more, files=usage.files + files_more)
    if excess := new_usage._replace(depth=0, closed=0).exceeded_limit(limits):
        raise target.attempt.to_tool_error(f"cannot be written: {folder} would hold {excess}")


# --- the walk -----------------------------------------------------------------------------------


@contextlib.contextmanager
def open_target_folder(target: AllowedPath, folders: list[str]) -> Iterator[int]:
    """Open a folder one component at a time. Raise `FileNotFoundError` for a missing component."""
    try:
        with _walk_to_folder(target, folders) as descriptor:
            yield descriptor
    except FileNotFoundError:
        raise
    except OSError as error:
        _raise_unless_file_specific(target, error)
        raise target.attempt.to_tool_error(f"cannot be looked at: {error.strerror}") from error


@contextlib.contextmanager
def _walk_to_folder(target: AllowedPath, folders: list[str]) -> Iterator[int]:
    forbidden, is_written = _forbidden_folders(target), target.attempt.access == "write"
    try:
        descriptor = os.open(target.root, _ROOT)
    except OSError as error:
        _raise_unless_file_specific(target, error)
        raise target.attempt.to_tool_error(f"cannot be reached: {target.root}: {error.strerror}") from error
    try:
        if target.root != target.base:
            _refuse_ancestors(target, descriptor, forbidden)
            if is_written:
                _refuse_other_name(target, descriptor, target.parts)
        mount = get_mount_id(descriptor) if is_written else 0
        for depth, name in enumerate(folders, 1):
            # From the open folder: a folder swapped for a link after a check of its path leads outside.
            inner = _open(target, name, descriptor, _FOLDER)
            os.close(descriptor)
            descriptor = inner
            _refuse_identity(target, os.fstat(descriptor), forbidden)
            # A bind mount may show a closed folder under an open name.
            if is_written and mount != (mount := get_mount_id(descriptor)):
                _refuse_other_name(target, descriptor, target.parts[depth:])
        yield descriptor
    finally:
        os.close(descriptor)


def _open(target: AllowedPath, name: str, folder: int, flags: int) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        raise
    except OSError as error:
        _raise_unless_file_specific(target, error)
        mode = 0
        with contextlib.suppress(OSError):
            mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            raise target.attempt.to_denial(f'"{name}" is a symbolic link') from error
        if error.errno == errno.ENOTDIR:
            raise target.attempt.to_tool_error(f'cannot be reached: "{name}" is not a folder') from error
        raise target.attempt.to_tool_error(f"cannot be opened: {error.strerror}") from error


def _raise_unless_file_specific(target: AllowedPath, error: OSError) -> None:
    """Raise `DiskError` for an error unrelated to the file; in external folders only for lack of resources."""
    if target.root == target.base or error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        require_about_one_file(target.path_key, error)


@contextlib.contextmanager
def open_target_file(target: AllowedPath) -> Iterator[int]:
    """Open a regular file for reading. Raise `PermissionDenied` or `ToolError`."""
    *folders, name = target.parts or ["."]
    try:
        with open_target_folder(target, folders) as folder:
            descriptor = _open(target, name, folder, _FILE)
    except FileNotFoundError as error:
        raise target.attempt.missing() from error
    try:
        _refuse_target(target, os.fstat(descriptor))
        yield descriptor
    except OSError as error:
        _raise_unless_file_specific(target, error)
        raise target.attempt.to_tool_error(f"cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)


def _refuse_target(target: AllowedPath, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise target.attempt.to_denial("it is a symbolic link")
    if stat.S_ISDIR(status.st_mode):
        raise target.attempt.to_tool_error("is a folder")
    if not stat.S_ISREG(status.st_mode):
        raise target.attempt.to_denial("it is not a regular file")
    if status.st_nlink > 1:  # the other name may be anywhere: no check of a path sees it
        raise target.attempt.to_denial("linked file: it has another name elsewhere")


# --- refused whatever the path: identity files, other names, forbidden folders ---
# A mount may show a folder of the organisation under another name. Linux tells in `/proc/self/fdinfo` and
# `/proc/self/mountinfo` (man 5 proc); other systems have no such mounts.


def _forbidden_folders(target: AllowedPath) -> dict[_Identity, str]:
    """Return the closed folders, by device and inode, which stay closed under any path.

    A grant may reach the organisation under another name (a bind mount, a volume that ignores case).
    """
    # /proc shows the environments of processes, which hold keys.
    folders = ["/proc"]
    if not target.granted:  # a grant of a folder above must not show the agent its evals
        folders.append(str(target.base / paths.EVALS))
    if target.attempt.access == "write":
        folders += [str(target.base / name) for name in sorted(NEVER_OPEN)]
        if target.root != target.base:
            folders.append(str(target.base / "agents"))
    identities = {}
    for folder in folders:
        try:
            status = os.stat(folder)
        except OSError as error:
            require_about_one_file(folder, error)
        else:
            identities[status.st_dev, status.st_ino] = folder
    return identities


def _refuse_identity(target: AllowedPath, status: os.stat_result, forbidden: dict[_Identity, str]) -> None:
    """Raise `PermissionDenied` for a file that holds an identity of an agent."""
    if closed := forbidden.get((status.st_dev, status.st_ino)):
        raise target.attempt.to_denial(f"{closed} is closed to agents")


def _refuse_other_name(target: AllowedPath, descriptor: int, relative: list[str]) -> None:
    """Raise an error if the entered folder is a mount of one in the organisation, and `relative` is closed there."""
    origin = get_mount_origin(descriptor)
    folder = os.open(target.base, _ROOT)
    try:
        org_origin = get_mount_origin(folder)
    finally:
        os.close(folder)
    if origin is None or org_origin is None or origin.device != org_origin.device:
        return
    if origin.parts[: len(org_origin.parts)] == org_origin.parts:
        require_agent_writable(target.attempt, (*origin.parts[len(org_origin.parts) :], *relative))


def _refuse_ancestors(target: AllowedPath, descriptor: int, forbidden: dict[_Identity, str]) -> None:
    """Walk up from a granted folder to `/`. Raise an error if the folder is inside a closed folder."""
    current, status = os.dup(descriptor), os.fstat(descriptor)
    try:
        while True:
            _refuse_identity(target, status, forbidden)
            parent = os.open("..", _ROOT, dir_fd=current)
            os.close(current)
            current, previous_status, status = parent, status, os.fstat(parent)
            if os.path.samestat(previous_status, status):
                return
    finally:
        os.close(current)


_ESCAPED = re.compile(rb"\\([0-7]{3})")


class _MountOrigin(NamedTuple):
    """A folder as identified by the file system: the device, and the path from the file system's root."""

    device: bytes
    parts: tuple[str, ...]


def get_mount_id(descriptor: int) -> int:
    """Return the id of the mount of an open folder; 0 if the system provides none.

    Raises `DiskError` if the lookup fails temporarily, for example without free descriptors.
    """
    for line in _lines(f"/proc/self/fdinfo/{descriptor}"):
        if line.startswith(b"mnt_id:"):
            return int(line.split()[1])
    return 0


def get_mount_origin(descriptor: int) -> _MountOrigin | None:
    """Return the real location of an open folder, or None if the system does not provide it."""
    mount = b"%d" % get_mount_id(descriptor)
    for line in _lines("/proc/self/mountinfo"):
        number, _, device, root, point = line.split(b" ", 5)[:5]
        if number == mount:
            # Of the descriptor, not of the requested path: this is the folder that was opened.
            path = os.readlink(f"/proc/self/fd/{descriptor}".encode())
            relative = os.path.relpath(path, _unescape_field(point))
            return _MountOrigin(device, _names(os.path.join(_unescape_field(root), relative)))
    return None


def _lines(file: str) -> list[bytes]:
    try:
        with open(file, "rb") as lines:
            return lines.readlines()
    except OSError as error:
        # A failed look is not "no mount": a mount that is missed opens a closed folder.
        require_about_one_file(file, error)
        return []


def _unescape_field(field: bytes) -> bytes:
    return _ESCAPED.sub(lambda match: bytes([int(match[1], 8)]), field)


def _names(path: bytes) -> tuple[str, ...]:
    return tuple(os.fsdecode(part) for part in os.path.normpath(path).split(b"/") if part not in (b"", b"."))
