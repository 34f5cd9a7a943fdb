"""The untrusted folder that an import reads: sizes are limited, and links are not followed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from lemming.kernel.files import fs
from lemming.kernel.files.disk_errors import raises_disk_error
from lemming.libraries.front_matter import InvalidFrontMatter, parse_front_matter, split_front_matter

TEXT_LIMIT_BYTES = 256 << 10
FILE_LIMIT_BYTES = 4 << 20
MAX_FILES = 2000
MAX_DEPTH = 6
_SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__"})


class Remark(NamedTuple):
    """A note for the user about a file of the source."""

    file: str
    message: str


class ImportSource:
    """A folder of another program, with relative paths. Each unreadable file becomes a remark."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.remarks = folder, list[Remark]()

    def list_folder(self, folder: str = "") -> tuple[list[str], list[str]]:
        """Return the sorted names of the folders and of the files in a folder, without links."""
        folders, files, entries = list[str](), list[str](), list[os.DirEntry[str]]()
        if not self._has_symlink(folder):
            try:
                entries = _scan_entries(self.folder / folder)
            except (FileNotFoundError, NotADirectoryError):
                pass
            except OSError as error:
                self._add_remark(folder or ".", f"cannot be listed: {error.strerror}")
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            elif entry.is_file(follow_symlinks=False):
                files.append(entry.name)
            else:
                description = "a link" if entry.is_symlink() else "no file"
                self._add_remark(_join_path(folder, entry.name), f"{description}: left out")
        return sorted(folders), sorted(files)

    def walk_files(self, folder: str) -> list[str]:
        """Return the sorted relative paths of all files below a folder, without hidden folders."""
        paths, pending = list[str](), [("", 0)]
        while pending and len(paths) <= MAX_FILES:
            current, depth = pending.pop()
            folders, files = self.list_folder(_join_path(folder, current))
            paths += [_join_path(current, name) for name in files]
            children = [name for name in folders if not name.startswith(".") and name not in _SKIPPED_FOLDERS]
            pending += [(_join_path(current, name), depth + 1) for name in children if depth < MAX_DEPTH]
        if len(paths) > MAX_FILES:
            self._add_remark(folder or ".", f"more than {MAX_FILES} files; the rest is left out")
        return sorted(paths)[:MAX_FILES]

    def read_bytes(self, path: str, limit_bytes: int = FILE_LIMIT_BYTES) -> bytes | None:
        """Return the bytes of a file, or None for a missing file. An unreadable or oversized file adds a remark."""
        if self._has_symlink(path):
            return None
        try:
            raw = fs.read_bytes(self.folder / path, limit_bytes)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._add_remark(path, f"cannot be read: {error.strerror}")
            return None
        if len(raw) > limit_bytes:
            self._add_remark(path, f"has more than {limit_bytes} bytes: left out")
            return None
        return raw

    def read_text(self, path: str) -> str | None:
        """Return the text of a file, or None as in `read_bytes` and for invalid UTF-8."""
        raw = self.read_bytes(path, TEXT_LIMIT_BYTES)
        if raw is None:
            return None
        try:
            return raw.decode("utf-8-sig")
        except UnicodeDecodeError:
            self._add_remark(path, "is not UTF-8 text: left out")
            return None

    def read_markdown(self, path: str) -> tuple[dict[str, Any], str] | None:
        """Return the front matter of a Markdown file and the text, or None as in `read_text`."""
        text = self.read_text(path)
        if text is None:
            return None
        try:
            header, body = split_front_matter(text)
            return ({} if header is None else parse_front_matter(header)), body.strip()
        except InvalidFrontMatter as error:
            location = f"line {error.line}: " if error.line else ""
            self._add_remark(path, f"{location}{error}: left out")
            return None

    def _has_symlink(self, path: str) -> bool:
        """Return True if the path or a parent folder is a link, with a single remark."""
        parts = path.split("/") if path else []
        for depth in range(len(parts)):
            partial_path = "/".join(parts[: depth + 1])
            if (self.folder / partial_path).is_symlink():
                self._add_remark(partial_path, "a link: left out")
                return True
        return False

    def _add_remark(self, path: str, message: str) -> None:
        remark = Remark(path, message)
        if remark not in self.remarks:
            self.remarks.append(remark)


@raises_disk_error
def _scan_entries(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return [entry for entry in entries if entry.name.isprintable()]


def _join_path(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder and name else folder or name
