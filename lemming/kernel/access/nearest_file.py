"""Suggestion for a missing path: the existing file the agent most likely meant."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from itertools import islice
from pathlib import PurePosixPath

from lemming.kernel.base import paths

MIN_SIMILARITY = 0.8
"""High, because different paths share much of their text."""
MAX_FILES, MAX_FOLDERS = 2000, 500
"""Limits of the search: files beyond them are not suggested."""


def nearest_file(
    agent_name: str, base: str | os.PathLike[str], path: str, granted: Iterable[str], *, is_folder: bool = False
) -> str:
    """Return the existing path nearest to a missing path, as the agent would write it, or an empty string.

    `granted`: the folders available to the agent, as returned by `granted_folders`. Only the agent's
    workspace, `shared/` and external folders are searched, and no link is followed. `is_folder`: search for a
    folder.
    """
    candidates: dict[str, None] = {}
    for folder in sorted(granted):
        if (name := _as_written(agent_name, folder)) is None:
            continue
        for relative in iter_names(os.path.join(base, folder), is_folder=is_folder):
            if len(candidates) >= MAX_FILES:
                break
            candidates[f"{name}/{relative}" if name else relative] = None
    requested = PurePosixPath(path.strip().removeprefix("./").removeprefix("workspace/"))
    close_matches = get_close_matches(str(requested), candidates, n=5, cutoff=MIN_SIMILARITY)
    # Files of one folder share its name and their suffixes: the stems decide.
    close_matches = [
        candidate for candidate in close_matches if get_close_matches(requested.stem, [PurePosixPath(candidate).stem])
    ]
    if close_matches:
        return close_matches[0]
    same_name = [candidate for candidate in candidates if PurePosixPath(candidate).name == requested.name]
    same_name = same_name or [candidate for candidate in candidates if PurePosixPath(candidate).stem == requested.stem]
    return same_name[0] if len(same_name) == 1 else ""


def _as_written(agent_name: str, folder: str) -> str | None:
    """Return the agent's name for a granted folder: empty for the workspace, None for an excluded folder."""
    workspace = paths.workspace_folder(agent_name)
    if folder == workspace or folder.startswith(f"{workspace}/"):
        return folder[len(workspace) + 1 :]
    return folder if folder.startswith("/") or folder.split("/")[0] == "shared" else None


def iter_names(folder: str, *, is_folder: bool) -> Iterator[str]:
    """Yield the paths below a folder, relative to the folder: of folders, or of files."""
    for parent, folders, files in islice(os.walk(folder), MAX_FOLDERS):
        folders[:] = sorted(folder_name for folder_name in folders if not folder_name.startswith("."))
        for name in folders if is_folder else sorted(files):
            file = os.path.join(parent, name)
            if name.isprintable() and not os.path.islink(file):
                yield os.path.relpath(file, folder)
