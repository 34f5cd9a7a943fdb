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


def to_text(path: bytes) -> str:
    r"""Return a path as text, with bytes that are no UTF-8 as \xNN.

    >>> to_text(b"caf\xe9")
    'caf\\xe9'
    """
    return path.decode("utf-8", "backslashreplace")


@dataclass
class Walk:
    """The regular files and links of a folder, and the paths that cannot be part of a patch.

    Left out are nested repositories, `submodules` with contents, too large and unreadable files, everything that is no
    file, link or folder, and paths that are too long or too deep. `files`: paths to bytes, -1 for a link. `left_out`:
    paths to reasons; folders end in a slash. Raises RepositoryError for half a million entries or more.
    """

    root: Path
    max_file_bytes: int
    submodules: Collection[bytes] = ()
    files: dict[bytes, int] = field(default_factory=dict)
    left_out: dict[bytes, str] = field(default_factory=dict)
    _count: int = 0

    def __post_init__(self) -> None:
        try:
            descriptor = os.open(self.root, _FOLDER)
        except OSError as error:
            raise RepositoryError(f"clone must be a folder: {error.strerror}", where=str(self.root)) from error
        self._walk_folder(descriptor, b"")

    def is_left_out(self, path: bytes) -> bool:
        """Return True if the path, or a folder above the path, is left out."""
        parts = path.split(b"/")
        folders = (b"/".join(parts[:number]) + b"/" for number in range(1, len(parts)))
        return path in self.left_out or any(folder in self.left_out for folder in folders)

    def read_rules(self) -> dict[bytes, bytes]:
        """Return the contents of the .gitignore files by path, without links and files beyond a megabyte."""
        return {
            path: fs.read_bytes(self.root / os.fsdecode(path), _MAX_RULES_BYTES)
            for path, size in self.files.items()
            if path.rpartition(b"/")[2] == b".gitignore" and 0 <= size <= _MAX_RULES_BYTES
        }

    def _walk_folder(self, descriptor: int, prefix: bytes) -> None:
        """Add the contents of an open folder, and close the folder."""
        try:
            names = sorted(map(os.fsencode, os.listdir(descriptor)))
            if prefix and b".git" in names:
                self.left_out[prefix] = "nested repository"
            elif prefix[:-1] in self.submodules:
                if names:
                    self.left_out[prefix] = "submodule: its contents are no part of a patch"
            else:
                for name in names:
                    if prefix or name != b".git":
                        self._add_entry(descriptor, name, prefix)
        finally:
            os.close(descriptor)

    def _add_entry(self, descriptor: int, name: bytes, prefix: bytes) -> None:
        self._count += 1
        if self._count > MAX_ENTRIES:
            raise RepositoryError(f"work tree must have at most {MAX_ENTRIES} files and folders, got more")
        path, status = prefix + name, os.lstat(name, dir_fd=descriptor)
        is_folder, is_file = stat.S_ISDIR(status.st_mode), stat.S_ISREG(status.st_mode)
        if len(path) > MAX_PATH_BYTES:
            self.left_out[path] = f"path must have at most {MAX_PATH_BYTES} bytes, got {len(path)} or more"
        elif is_folder and prefix.count(b"/") >= MAX_DEPTH:
            self.left_out[path + b"/"] = f"folders must be nested at most {MAX_DEPTH} deep"
        elif is_folder:
            try:
                inner = os.open(name, _FOLDER, dir_fd=descriptor)
            except OSError as error:
                self.left_out[path + b"/"] = f"unreadable folder: {error.strerror}"
            else:
                self._walk_folder(inner, path + b"/")
        elif stat.S_ISLNK(status.st_mode):
            self.files[path] = -1
        elif not is_file and name == b".gitattributes":
            # git opens this file beside each file that it reads, and would wait for ever for the other end of a pipe.
            raise RepositoryError(".gitattributes must be a file, got a pipe or a device", where=to_text(path))
        elif not is_file:
            self.left_out[path] = "neither a file, a link nor a folder"
        elif status.st_size > self.max_file_bytes:
            self.left_out[path] = f"file must have at most {self.max_file_bytes} bytes, got {status.st_size}"
        elif not os.access(name, os.R_OK, dir_fd=descriptor):
            self.left_out[path] = "unreadable file"
        else:
            self.files[path] = status.st_size
