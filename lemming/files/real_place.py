"""The one name of a place, whatever path leads to it."""

from __future__ import annotations

import os
from pathlib import Path


def opened_place(base: Path, place: str) -> str:
    """Return the one name of a place, whatever path leads to it: what marks and rules know it by.

    Relative to the organisation if it lies there, else absolute and without links.
    """
    try:
        real, org = _names(os.path.realpath(base / place)), _names(os.path.realpath(base))
    except ValueError:  # no path at all: whatever opens it says so
        return place
    return "/".join(real[len(org) :] if real[: len(org)] == org else ("", *real)) or "/"


def _names(path: str) -> tuple[str, ...]:
    return tuple(name for name in path.split("/") if name)
