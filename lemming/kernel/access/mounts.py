"""Real location of an open folder: a mount may show a folder of the organisation under another name.

Linux provides it in `/proc/self/fdinfo` and `/proc/self/mountinfo` (man 5 proc); other systems have no such
mounts.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from lemming.kernel.files.disk_errors import require_about_one_file

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
