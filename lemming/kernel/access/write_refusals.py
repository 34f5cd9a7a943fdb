"""Reasons to refuse a write: identity files, foreign names, forbidden folders."""

from __future__ import annotations

import os

from lemming.kernel.access import mounts
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
    origin = mounts.get_mount_origin(descriptor)
    folder = os.open(target.base, ROOT)
    try:
        org_origin = mounts.get_mount_origin(folder)
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
