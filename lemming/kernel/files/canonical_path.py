"""Canonical name of a path, independent of links."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from lemming.kernel.files.disk_errors import require_about_one_file
from lemming.kernel.files.stat_cache import lstat

MAX_LINKS = 40  # as the kernel follows


def canonical_path(base: Path, path: str) -> str:
    """Return the canonical name of a path, which sidecar labels and rules use as a key.

    Relative to the organisation if inside it, else absolute and without links. Raises the same errors as
    `real_path`.
    """
    try:
        real, org = _names(real_path(f"{base / path}")), _names(real_path(f"{base}"))
    except ValueError:  # not a path: reported when it is opened
        return path
    return "/".join(real[len(org) :] if real[: len(org)] == org else ("", *real)) or "/"


def real_path(path: str) -> str:
    """Return the target of a path, including a path to a missing file. Raises `DiskError` if the disk fails.

    `os.path.realpath` treats a refused check as a path without a link.
    """
    real, links = "", 0
    pending = [*reversed(os.path.join(os.getcwd(), path).split("/"))]
    while pending:
        name = pending.pop()
        if name == "..":
            real = real.rpartition("/")[0]
        elif name not in ("", "."):
            target = _resolve_link(f"{real}/{name}")
            if target is None:
                real = f"{real}/{name}"
                continue
            if (links := links + 1) > MAX_LINKS:  # a cycle of links
                return os.path.realpath(path)
            real = "" if target.startswith("/") else real
            pending += reversed(target.split("/"))
    return real or "/"


def _resolve_link(path: str) -> str | None:
    """Return the target of a link, or None if the path is missing or is not a link."""
    try:
        return os.readlink(path) if stat.S_ISLNK(lstat(path).st_mode) else None
    except OSError as error:
        require_about_one_file(path, error)
        return None


def _names(path: str) -> tuple[str, ...]:
    return tuple(name for name in path.split("/") if name)
