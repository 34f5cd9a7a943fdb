"""Reasons to refuse a write: identity files, foreign names, forbidden folders.

A mount may show a folder of the organisation under another name. Linux tells in `/proc/self/fdinfo` and
`/proc/self/mountinfo` (man 5 proc); other systems have no such mounts.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from lemming.kernel.access.allowed_paths import NEVER_OPEN, AllowedPath, require_agent_writable
from lemming.kernel.base import paths
from lemming.kernel.files.disk_errors import require_about_one_file

Identity = tuple[int, int]


ROOT = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def forbidden_folders(target: AllowedPath) -> dict[Identity, str]:
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


def refuse_identity(target: AllowedPath, status: os.stat_result, forbidden: dict[Identity, str]) -> None:
    """Raise `PermissionDenied` for a file that holds an identity of an agent."""
    if closed := forbidden.get((status.st_dev, status.st_ino)):
        raise target.attempt.to_denial(f"{closed} is closed to agents")


def refuse_other_name(target: AllowedPath, descriptor: int, relative: list[str]) -> None:
    """Raise an error if the entered folder is a mount of one in the organisation, and `relative` is closed
    there.
    """
    origin = get_mount_origin(descriptor)
    folder = os.open(target.base, ROOT)
    try:
        org_origin = get_mount_origin(folder)
    finally:
        os.close(folder)
    if origin is None or org_origin is None or origin.device != org_origin.device:
        return
    if origin.parts[: len(org_origin.parts)] == org_origin.parts:
        require_agent_writable(target.attempt, (*origin.parts[len(org_origin.parts) :], *relative))


def refuse_ancestors(target: AllowedPath, descriptor: int, forbidden: dict[Identity, str]) -> None:
    """Walk up from a granted folder to `/`. Raise an error if the folder is inside a closed folder."""
    current, status = os.dup(descriptor), os.fstat(descriptor)
    try:
        while True:
            refuse_identity(target, status, forbidden)
            parent = os.open("..", ROOT, dir_fd=current)
            os.close(current)
            current, previous_status, status = parent, status, os.fstat(parent)
            if os.path.samestat(previous_status, status):
                return
    finally:
        os.close(current)


_ESCAPED = re.compile(rb"\\([0-7]{3})")


class MountOrigin(NamedTuple):
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


def get_mount_origin(descriptor: int) -> MountOrigin | None:
    """Return the real location of an open folder, or None if the system does not provide it.

    Raises the same errors as `get_mount_id`.
    """
    mount = b"%d" % get_mount_id(descriptor)
    for line in _lines("/proc/self/mountinfo"):
        number, _, device, root, point = line.split(b" ", 5)[:5]
        if number == mount:
            # Of the descriptor, not of the requested path: this is the folder that was opened.
            path = os.readlink(f"/proc/self/fd/{descriptor}".encode())
            relative = os.path.relpath(path, _unescape_field(point))
            return MountOrigin(device, _names(os.path.join(_unescape_field(root), relative)))
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
