"""The file that an agent most likely meant by a path at which there is none, to be named in its result."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from itertools import islice
from pathlib import PurePosixPath

from lemming.kernel.base import paths

LEAST_ALIKE = 0.8
"""Paths share much, so that two that are less alike are two files."""
MOST_LOOKED_AT, MOST_FOLDERS = 2000, 500
"""So many files are looked at, in so many folders; what lies behind them is not named."""


def nearest_file(
    agent_name: str,
    base: str | os.PathLike[str],
    path: str,
    granted: Iterable[str],
    *,
    is_folder: bool = False,
) -> str:
    """Return the path, as the agent would write it, of the file that is nearest to one that is not there.

    `granted`: the folders that the agent may use, as `granted_places` has them. Only its workspace, `shared/`
    and folders elsewhere are looked at, and no link is followed. Empty where no path is near. `is_folder`: a
    folder is looked for.
    """
    written: dict[str, None] = {}
    for place in sorted(granted):
        if (name := _as_written(agent_name, place)) is None:
            continue
        for below in _names_below(os.path.join(base, place), is_folder=is_folder):
            if len(written) >= MOST_LOOKED_AT:
                break
            written[f"{name}/{below}" if name else below] = None
    meant = PurePosixPath(path.strip().removeprefix("./").removeprefix("workspace/"))
    close = get_close_matches(str(meant), written, n=5, cutoff=LEAST_ALIKE)
    # Files of one folder are alike by its name, and by their endings.
    close = [it for it in close if get_close_matches(meant.stem, [PurePosixPath(it).stem])]
    if close:
        return close[0]
    alike = [it for it in written if PurePosixPath(it).name == meant.name]
    alike = alike or [it for it in written if PurePosixPath(it).stem == meant.stem]
    return alike[0] if len(alike) == 1 else ""


def _as_written(agent_name: str, place: str) -> str | None:
    """Return how an agent writes a granted folder: nothing for its workspace; None for one left alone."""
    own = paths.workspace_folder(agent_name)
    if place == own or place.startswith(f"{own}/"):
        return place[len(own) + 1 :]
    return place if place.startswith("/") or place.split("/")[0] == "shared" else None


def _names_below(folder: str, *, is_folder: bool) -> Iterator[str]:
    for above, folders, files in islice(os.walk(folder), MOST_FOLDERS):
        folders[:] = sorted(it for it in folders if not it.startswith("."))
        for name in folders if is_folder else sorted(files):
            file = os.path.join(above, name)
            if name.isprintable() and not os.path.islink(file):
                yield os.path.relpath(file, folder)
