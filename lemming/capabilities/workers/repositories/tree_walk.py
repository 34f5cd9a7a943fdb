"""Walks a hostile folder by descriptors: no link is followed, nothing is opened but folders and ignore files."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from lemming.capabilities.workers.repositories.git_command import RepositoryError
from lemming.kernel.files import fs

MAX_PATH_BYTES = 4_000
"""Longest path; git does not list paths beyond 4,096 bytes, without an error."""

MAX_DEPTH = 128
"""Number of folders within each other, each with an open descriptor."""

MAX_ENTRIES = 500_000
"""Number of files and folders, of which most may be ignored by-products."""

_MAX_RULES_BYTES = 1_000_000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass
class Walk:
    """The regular files and links of a folder, and the paths that cannot be part of a patch.

    `files`: paths to bytes, -1 for a link. `left_out`: paths to reasons; folders end in a slash. `count`: number of entries.
    """

    files: dict[bytes, int] = field(default_factory=dict)
    left_out: dict[bytes, str] = field(default_factory=dict)
    count: int = 0

    def is_left_out(self, path: bytes) -> bool:
        """Return True if the path, or a folder above the path, is left out."""
        parts = path.split(b"/")
        folders = (b"/".join(parts[:number]) + b"/" for number in range(1, len(parts)))
        return path in self.left_out or any(folder in self.left_out for folder in folders)

    def read_rules(self, folder: Path) -> dict[bytes, bytes]:
        """Return the contents of the .gitignore files by path, without links and files beyond a megabyte."""
        rules = {}
        for path, size in self.files.items():
            if path.rpartition(b"/")[2] == b".gitignore" and 0 <= size <= _MAX_RULES_BYTES:
                rules[path] = fs.read_bytes(folder / os.fsdecode(path), _MAX_RULES_BYTES)
        return rules


def walk_tree(root: Path, *, max_file_bytes: int, submodules: Collection[bytes] = ()) -> Walk:
    """Return the files below `root`, without its `.git`. Raises RepositoryError for half a million entries or more.

    Left out are nested repositories, `submodules` with contents, too large and unreadable files, everything that is no
    file, link or folder, and paths that are too long or too deep.
    """
    walk = Walk()
    try:
        descriptor = os.open(root, _FOLDER)
    except OSError as error:
        raise RepositoryError(f"clone must be a folder: {error.strerror}", where=str(root)) from error
    _walk_folder(walk, descriptor, b"", max_file_bytes, submodules)
    return walk


def to_text(path: bytes) -> str:
    r"""Return a path as text, with bytes that are no UTF-8 as \xNN.

    >>> to_text(b"caf\xe9")
    'caf\\xe9'
    """
    return path.decode("utf-8", "backslashreplace")


def _walk_folder(
    walk: Walk, descriptor: int, prefix: bytes, max_file_bytes: int, submodules: Collection[bytes]
) -> None:
    """Add the contents of an open folder to the walk, and close the folder."""
    try:
        names = sorted(map(os.fsencode, os.listdir(descriptor)))
        if prefix and b".git" in names:
            walk.left_out[prefix] = "nested repository"
            return
        if prefix[:-1] in submodules:
            if names:
                walk.left_out[prefix] = "submodule: its contents are no part of a patch"
            return
        for name in names:
            if not prefix and name == b".git":
                continue
            walk.count += 1
            if walk.count > MAX_ENTRIES:
                raise RepositoryError(f"work tree must have at most {MAX_ENTRIES} files and folders, got more")
            _add_entry(walk, descriptor, name, prefix, max_file_bytes, submodules)
    finally:
        os.close(descriptor)


def _add_entry(
    walk: Walk, descriptor: int, name: bytes, prefix: bytes, max_file_bytes: int, submodules: Collection[bytes]
) -> None:
    path, status = prefix + name, os.lstat(name, dir_fd=descriptor)
    is_folder = stat.S_ISDIR(status.st_mode)
    if len(path) > MAX_PATH_BYTES:
        walk.left_out[path] = f"path must have at most {MAX_PATH_BYTES} bytes, got {len(path)} or more"
    elif is_folder and prefix.count(b"/") >= MAX_DEPTH:
        walk.left_out[path + b"/"] = f"folders must be nested at most {MAX_DEPTH} deep"
    elif is_folder:
        try:
            inner = os.open(name, _FOLDER, dir_fd=descriptor)
        except OSError as error:
            walk.left_out[path + b"/"] = f"unreadable folder: {error.strerror}"
        else:
            _walk_folder(walk, inner, path + b"/", max_file_bytes, submodules)
    elif stat.S_ISLNK(status.st_mode):
        walk.files[path] = -1
    elif not stat.S_ISREG(status.st_mode) and name == b".gitattributes":
        # git opens this file beside each file that it reads, and would wait for ever for the other end of a pipe.
        raise RepositoryError(".gitattributes must be a file, got a pipe or a device", where=to_text(path))
    elif not stat.S_ISREG(status.st_mode):
        walk.left_out[path] = "neither a file, a link nor a folder"
    elif status.st_size > max_file_bytes:
        walk.left_out[path] = f"file must have at most {max_file_bytes} bytes, got {status.st_size}"
    elif not os.access(name, os.R_OK, dir_fd=descriptor):
        walk.left_out[path] = "unreadable file"
    else:
        walk.files[path] = status.st_size
