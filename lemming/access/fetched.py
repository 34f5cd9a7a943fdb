"""Whether git has brought something from elsewhere into a folder; its files are read, git is not started.

`FETCH_HEAD` is written by every fetch and pull (git-scm.com/docs/gitrevisions). A folder may lie deep in a
repository, and `.git` may be a file that says where it is (git-scm.com/docs/gitrepository-layout).
"""

from __future__ import annotations

import os
from pathlib import Path

from lemming.files import fs
from lemming.files.stamps import is_there

_POINTER_LIMIT_BYTES = 1 << 13


def has_fetched(folder: Path) -> bool:
    """Return whether a repository that the folder lies in has ever fetched; one that cannot be read has."""
    here = folder.resolve()
    return any(_has_fetched(inner / ".git") for inner in (here, *here.parents))


def _has_fetched(git: Path) -> bool:
    if git.is_dir():
        return is_there(f"{git}/FETCH_HEAD")
    if not git.is_file():
        return False
    try:
        work_tree = _named(git, "gitdir: ")
        common = work_tree / "commondir"
        folders = [work_tree, _named(common, "") if common.is_file() else work_tree]
    except OSError:
        return True
    return any(is_there(f"{folder}/FETCH_HEAD") for folder in folders)


def _named(file: Path, prefix: str) -> Path:
    """Return the folder that a file of git's names, which may be relative to its own."""
    text = os.fsdecode(fs.read_bytes(file, _POINTER_LIMIT_BYTES)).strip()
    return file.parent / text.removeprefix(prefix)
