"""What a backup is: a .tar.gz of an organisation's files, and last in it a manifest. Pure but for reading.

Format: docs/formats.md, "Backup". The manifest makes it whole: an archive that was cut short has none.
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
from lemming.kernel.base.jsontext import parse, pretty_words
from lemming.kernel.files.documents import value_of
from lemming.kernel.files.fitting import about
from lemming.kernel.files.refusals import refused
from lemming.kernel.files.temporary import is_temporary

MANIFEST = ".lemming-backup.json"
SUFFIXES = (".tar.gz", ".tgz")
VERSION = 1
LEFT_OUT = (".git", ".lemming", MANIFEST)
"""Of the organisation's folder: not its files, or made again (the history: `lemming history on`)."""
_CACHES = ("__pycache__",)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What an archive holds. `root` is one digest of all files: names, lengths and contents, in order."""

    version: int = field(metadata=about("", ge=0))
    lemming: str
    made_at: str
    org: str
    tick: int = field(metadata=about("", ge=0))
    agents: list[str]
    files: int = field(metadata=about("", ge=0))
    content_bytes: int = field(metadata=about("", ge=0))
    root: str

    def as_bytes(self) -> bytes:
        """Return the manifest as the file that ends an archive."""
        return pretty_words(asdict(self))


def read_manifest(raw: bytes) -> Manifest:
    """Return the manifest that stands in an archive; raise `CorruptState`."""
    try:
        found: Manifest = value_of(Manifest, parse(raw))
    except ValueError as error:
        raise damaged(f"its manifest cannot be read: {error}") from error
    if found.version > VERSION:
        raise CorruptState(
            f"it was made by LeMMing {found.lemming[:20]}, which is newer",
            hint="pip install -U lemming-engine",
        )
    return found


def damaged(why: str) -> CorruptState:
    """Return the error for a file that is no whole backup."""
    return CorruptState(f"no whole backup: {why}", hint="use another backup; nothing was written")


class Root:
    """The digest of all files as they go by."""

    def __init__(self) -> None:
        self._all = sha256()
        self.files = self.content_bytes = 0

    def add(self, name: str, size: int, digest: bytes) -> None:
        """Take a file into account."""
        self._all.update(b"%s\0%d\0%s\n" % (os.fsencode(name), size, digest))
        self.files += 1
        self.content_bytes += size

    def hexdigest(self) -> str:
        """Return the digest of all files so far."""
        return self._all.hexdigest()


@dataclass(frozen=True)
class ArchiveMember:
    """Something to be kept: a folder, a file, a link."""

    name: str
    status: os.stat_result
    link: str = ""


def members(base: Path, left_out: list[str]) -> Iterator[ArchiveMember]:
    """Yield what a backup holds, folders before what is in them, sorted; note in `left_out` what it does not.

    Raises `DiskError` for what cannot be read.
    """
    pending = [""]
    while pending:
        folder = pending.pop()
        inner = []
        for name in _names_in(base, folder):
            if name in _CACHES or is_temporary(name) or (not folder and name in LEFT_OUT):
                continue
            member = _member(base, f"{folder}{name}", left_out)
            if member is None:
                continue
            yield member
            if stat.S_ISDIR(member.status.st_mode):
                inner.append(f"{folder}{name}/")
        pending += reversed(inner)


def _names_in(base: Path, folder: str) -> list[str]:
    try:
        return sorted(os.listdir(base / folder))
    except FileNotFoundError:  # removed a moment ago
        return []
    except OSError as error:
        raise cannot_read(base, folder, error) from error


def _member(base: Path, name: str, left_out: list[str]) -> ArchiveMember | None:
    try:
        status = os.lstat(base / name)
        if stat.S_ISLNK(status.st_mode):
            link = os.readlink(base / name)
            if os.path.isabs(link) or not _leads_inside(base, name, link):
                left_out.append(f"{name}: a link that leads outside")
                return None
            return ArchiveMember(name, status, link)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise cannot_read(base, name, error) from error
    if stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode):
        return ArchiveMember(name, status)
    left_out.append(f"{name}: no file")
    return None


def _leads_inside(base: Path, name: str, link: str) -> bool:
    there = os.path.normpath(os.path.join(os.path.dirname(name), link))
    return there != ".." and not there.startswith("../")


def cannot_read(base: Path, name: str, error: OSError) -> DiskError:
    """Return the error for something of the organisation that cannot be read."""
    told: Any = refused(base, name, error)
    return DiskError(f"cannot read: {error.strerror or error}", where=told.where, hint=told.hint)
