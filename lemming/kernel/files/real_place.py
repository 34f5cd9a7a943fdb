"""The one name of a place, whatever path leads to it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from lemming.kernel.files.refusals import require_about_one_file
from lemming.kernel.files.stamps import status_of

MOST_LINKS = 40  # as the kernel follows


def opened_place(base: Path, place: str) -> str:
    """Return the one name of a place, whatever path leads to it: what marks and rules know it by.

    Relative to the organisation if it lies there, else absolute and without links. Raises as `real_path`.
    """
    try:
        real, org = _names(real_path(f"{base / place}")), _names(real_path(f"{base}"))
    except ValueError:  # no path at all: whatever opens it says so
        return place
    return "/".join(real[len(org) :] if real[: len(org)] == org else ("", *real)) or "/"


def real_path(path: str) -> str:
    """Return where a path leads, also one to nowhere. Raises `DiskError` when the disk does not say.

    `os.path.realpath` takes a look that is refused for one at no link.
    """
    real, links = "", 0
    pending = [*reversed(os.path.join(os.getcwd(), path).split("/"))]
    while pending:
        name = pending.pop()
        if name == "..":
            real = real.rpartition("/")[0]
        elif name not in ("", "."):
            target = _link_at(f"{real}/{name}")
            if target is None:
                real = f"{real}/{name}"
                continue
            if (links := links + 1) > MOST_LINKS:  # they lead to each other
                return os.path.realpath(path)
            real = "" if target.startswith("/") else real
            pending += reversed(target.split("/"))
    return real or "/"


def _link_at(path: str) -> str | None:
    """Return what a link says; None for what is none, or is not there."""
    try:
        return os.readlink(path) if stat.S_ISLNK(status_of(path).st_mode) else None
    except OSError as error:
        require_about_one_file(path, error)
        return None


def _names(path: str) -> tuple[str, ...]:
    return tuple(name for name in path.split("/") if name)
