"""Where an open folder really lies: a mount may show a folder of the organisation under another name.

`/proc/self/fdinfo` and `/proc/self/mountinfo` (man 5 proc) tell on Linux; elsewhere there are no such mounts.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from lemming.kernel.files.refusals import require_about_one_file

_ESCAPED = re.compile(rb"\\([0-7]{3})")


class Origin(NamedTuple):
    """A folder as its file system knows it: the file system's device, and the names from its own root."""

    device: bytes
    parts: tuple[str, ...]


def mount_of(descriptor: int) -> int:
    """Return the number of the mount that a folder was opened in; 0 where the system does not tell.

    Raises `DiskError` where it does not tell just now: without descriptors, say.
    """
    for line in _lines(f"/proc/self/fdinfo/{descriptor}"):
        if line.startswith(b"mnt_id:"):
            return int(line.split()[1])
    return 0


def origin_of(descriptor: int) -> Origin | None:
    """Return where an open folder lies, whatever it is called; None where the system does not tell.

    Raises as `mount_of`.
    """
    mount = b"%d" % mount_of(descriptor)
    for line in _lines("/proc/self/mountinfo"):
        number, _, device, root, point = line.split(b" ", 5)[:5]
        if number == mount:
            path = os.readlink(f"/proc/self/fd/{descriptor}".encode())
            below = os.path.relpath(path, _plain(point))
            return Origin(device, _names(os.path.join(_plain(root), below)))
    return None


def _lines(file: str) -> list[bytes]:
    try:
        with open(file, "rb") as lines:
            return lines.readlines()
    except OSError as error:
        # Too many open files tell nothing of mounts, and one that is passed over opens what is closed.
        require_about_one_file(file, error)
        return []


def _plain(field: bytes) -> bytes:
    return _ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), field)


def _names(path: bytes) -> tuple[str, ...]:
    return tuple(os.fsdecode(part) for part in os.path.normpath(path).split(b"/") if part not in (b"", b"."))
