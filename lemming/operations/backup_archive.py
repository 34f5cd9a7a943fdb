"""Format of a backup: a .tar.gz of an organisation's files with a manifest at the end.

Pure except for reading.

Format: docs/formats.md, "Backup". The manifest proves completeness: a truncated archive has none.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from lemming.kernel.base.errors import CorruptState, DiskError
from lemming.kernel.base.jsontext import dump_pretty_flat, parse
from lemming.kernel.files.disk_errors import write_error
from lemming.kernel.files.fast_decoder import describe_field
from lemming.kernel.files.json_documents import to_value
from lemming.kernel.files.safe_folder import is_temporary

MANIFEST = ".lemming-backup.json"
SUFFIXES = (".tar.gz", ".tgz")
VERSION = 1
EXCLUDED_NAMES = (".git", ".lemming", MANIFEST)
"""Names left out of a backup: not the organisation's own files, or rebuilt (the history: `lemming history on`)."""
_CACHE_FOLDERS = ("__pycache__",)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The manifest of an archive. `root` is a single digest of all files: names, lengths and contents, in order."""

    version: int = field(metadata=describe_field("", ge=0))
    lemming: str
    made_at: str
    org: str
    tick: int = field(metadata=describe_field("", ge=0))
    agents: list[str]
    files: int = field(metadata=describe_field("", ge=0))
    content_bytes: int = field(metadata=describe_field("", ge=0))
    root: str

    def to_bytes(self) -> bytes:
        """Return the content of the manifest file."""
        return dump_pretty_flat(asdict(self))


def parse_manifest(raw: bytes) -> Manifest:
    """Parse the manifest of an archive. Raises: CorruptState."""
    try:
        manifest: Manifest = to_value(Manifest, parse(raw))
    except ValueError as error:
        raise damaged_archive_error(f"its manifest cannot be read: {error}") from error
    if manifest.version > VERSION:
        raise CorruptState(
            f"the backup was made by a newer LeMMing ({manifest.lemming[:20]})",
            hint="upgrade first: pip install -U lemming-engine",
        )
    return manifest


def damaged_archive_error(reason: str) -> CorruptState:
    """Return the error for an incomplete or invalid backup."""
    return CorruptState(f"the backup is damaged: {reason}", hint="use another backup; nothing was written")


class ArchiveDigest:
    """Running digest of all files of an archive."""

    def __init__(self) -> None:
        self._all = sha256()
        self.files = self.content_bytes = 0

    def add(self, name: str, size: int, digest: bytes) -> None:
        """Add a file to the digest."""
        self._all.update(b"%s\0%d\0%s\n" % (os.fsencode(name), size, digest))
        self.files += 1
        self.content_bytes += size

    def hexdigest(self) -> str:
        """Return the digest of all files added."""
        return self._all.hexdigest()


@dataclass(frozen=True)
class ArchiveMember:
    """A folder, file or link to archive."""

    name: str
    status: os.stat_result
    link: str = ""


def iter_members(base: Path, omitted: list[str]) -> Iterator[ArchiveMember]:
    """Yield the members of a backup sorted, folders first, and append omissions to `omitted`. Raises: DiskError."""
    pending = [""]
    while pending:
        folder = pending.pop()
        subfolders = []
        for name in _list_names(base, folder):
            if name in _CACHE_FOLDERS or is_temporary(name) or (not folder and name in EXCLUDED_NAMES):
                continue
            member = _make_member(base, f"{folder}{name}", omitted)
            if member is None:
                continue
            yield member
            if stat.S_ISDIR(member.status.st_mode):
                subfolders.append(f"{folder}{name}/")
        pending += reversed(subfolders)


def _list_names(base: Path, folder: str) -> list[str]:
    try:
        return sorted(os.listdir(base / folder))
    except FileNotFoundError:  # removed a moment ago
        return []
    except OSError as error:
        raise make_read_error(base, folder, error) from error


def _make_member(base: Path, name: str, omitted: list[str]) -> ArchiveMember | None:
    try:
        status = os.lstat(base / name)
        if stat.S_ISLNK(status.st_mode):
            link = os.readlink(base / name)
            if os.path.isabs(link) or not _is_link_inside(base, name, link):
                omitted.append(f"{name}: a link that leads outside")
                return None
            return ArchiveMember(name, status, link)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise make_read_error(base, name, error) from error
    if stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode):
        return ArchiveMember(name, status)
    omitted.append(f"{name}: no file")
    return None


def _is_link_inside(base: Path, name: str, link: str) -> bool:
    destination = os.path.normpath(os.path.join(os.path.dirname(name), link))
    return destination != ".." and not destination.startswith("../")


def make_read_error(base: Path, name: str, error: OSError) -> DiskError:
    """Return the error for an unreadable file of the organisation."""
    refusal: Any = write_error(base, name, error)
    return DiskError(f"cannot read: {error.strerror or error}", where=refusal.where, hint=refusal.hint)
