"""Ignore rules: git decides about names, with the .gitignore files that the engine hands over as the only work tree."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from lemming.capabilities.workers.repositories.collector import EngineRepository
from lemming.kernel.files import fs

_NAME = b".gitignore"


def read_rules(collector: EngineRepository, entries: Mapping[bytes, tuple[bytes, str]]) -> dict[bytes, bytes]:
    """Return the contents of the .gitignore files among an index's entries (mode and object id by path)."""
    names = {
        path: name
        for path, (mode, name) in entries.items()
        if path.rpartition(b"/")[2] == _NAME and mode.startswith(b"100")
    }
    return dict(zip(names, collector.read_blobs(list(names.values())), strict=True))


def find_ignored_paths(
    collector: EngineRepository, rules: Mapping[bytes, bytes], paths: Collection[bytes]
) -> set[bytes]:
    """Return the paths that the rules ignore, and the folders above the paths that they ignore as a whole.

    `rules`: contents of .gitignore files by path. Folders end in a slash.
    """
    if not paths:
        return set()
    with collector.open_index() as env:
        for path, content in rules.items():
            fs.write_atomic(Path(env["GIT_WORK_TREE"]), os.fsdecode(path), content)
        # "./" keeps a name such as ":(top)x" from being read as a pattern.
        lines = b"".join(b"./" + path + b"\0" for path in {*paths, *_list_folders(paths)})
        env |= {"GIT_LITERAL_PATHSPECS": "0"}
        output = collector.run("check-ignore", "-z", "--stdin", "--no-index", env=env, stdin=lines, accept=(0, 1))
    return {path.removeprefix(b"./") for path in output.split(b"\0")[:-1]}


def find_top_paths(ignored: set[bytes], without: set[bytes]) -> set[bytes]:
    """Return the ignored paths outside of `without` whose folder is not ignored too."""
    paths = ignored - without
    return {path for path in paths if not any(folder in paths for folder in _list_folders([path]))}


def _list_folders(paths: Collection[bytes]) -> set[bytes]:
    folders: set[bytes] = set()
    for path in paths:
        folder = path.rstrip(b"/").rpartition(b"/")[0]
        while folder and folder + b"/" not in folders:
            folders.add(folder + b"/")
            folder = folder.rpartition(b"/")[0]
    return folders
