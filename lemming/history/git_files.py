"""What a history's repository may consist of, checked before git is started on it.

An organisation may come from a stranger, and git believes its files: settings start programs, a link or
`alternates` leads elsewhere, a pipe never ends. So the settings must be the bytes that we write, every name
that steers git is on a closed list, and everything is a regular file or a folder.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from lemming.errors import GitFailed
from lemming.files import fs
from lemming.files.descriptors import walk

ATTRIBUTES = ".gitattributes"
_NAMES = {
    "": {
        "HEAD", "FETCH_HEAD", "ORIG_HEAD", "branches", "config", "description", "gc.log", "gc.pid", "hooks",
        "index", "info", "logs", "objects", "packed-refs", "refs",
    },
    "info": {"attributes", "exclude", "refs"},
    "objects/info": {"commit-graph", "commit-graphs", "packs"},
}  # fmt: skip
_MOVE = "an organisation from elsewhere may hold what you do not expect; move it away if it is not yours"


def require_ours(base: Path, folder: str, contents: Mapping[str, bytes]) -> None:
    """Raise `GitFailed` unless the repository `base/folder` is one that git may be started on.

    `contents` are the files that must be there byte for byte.
    """
    for place in (os.path.dirname(folder), folder):
        if not os.path.isdir(base / place) or os.path.islink(base / place):
            raise GitFailed("this is not a folder; git is not started", where=place, hint=_MOVE)
    for name, ours in contents.items():
        if _content(base, f"{folder}/{name}", len(ours)) != ours:
            hint = f"if you trust it, restore it from another organisation; else move {folder} away"
            raise GitFailed(
                "this is not as LeMMing writes it; it is not used", where=f"{folder}/{name}", hint=hint
            )
    for inner, names in _NAMES.items():
        for name in _names(f"{base}/{folder}/{inner}"):
            if name not in names and not name.endswith((".lock", ".tmp")):
                raise GitFailed(
                    "this does not belong to a history; git is not started",
                    where=os.path.join(folder, inner, name),
                    hint=_MOVE,
                )
    for path in _odd_files(f"{base}/{folder}"):
        where = os.path.relpath(path, base)
        raise GitFailed("neither a file nor a folder; git is not started", where=where, hint=_MOVE)


def require_no_pipes(base: Path, below: Iterable[str]) -> None:
    """Raise `GitFailed` for a `.gitattributes` on which git, which opens it, would wait for ever."""
    folders = [str(base), *(folder for top in below for folder, _, _ in walk(base / top))]
    for folder in folders:
        path = os.path.join(folder, ATTRIBUTES)
        try:
            mode = os.stat(path).st_mode
        except OSError:
            continue
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            where = os.path.relpath(path, base)
            raise GitFailed("not a file; git is not started", where=where, hint="move it away")


def _content(base: Path, file: str, size: int) -> bytes:
    try:
        return fs.read_bytes(base / file, size)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise GitFailed(f"cannot be read: {error.strerror}", where=file) from error


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _odd_files(folder: str) -> Iterator[str]:
    """Yield what is neither a regular file nor a folder, at any depth; links are not followed."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from _odd_files(entry.path)
                elif not entry.is_file(follow_symlinks=False):
                    yield entry.path
    except OSError as error:
        raise GitFailed(f"cannot be read: {error.strerror}", where=folder) from error
