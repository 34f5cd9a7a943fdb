"""Format of a backup (a .tar.gz of an organisation's files, then a manifest), and its restoration.

Format: docs/formats.md, "Backup". The manifest proves completeness: a truncated archive has none. A restoration
unpacks to a staging folder, compares with the manifest, then renames. An archive may come from an arbitrary author:
Python's tarfile filter "data" refuses members outside the folder, devices and hard links are refused, and every file
must be covered by the manifest.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import zlib
from dataclasses import dataclass, field
from hashlib import file_digest, sha256
from pathlib import Path

from lemming.kernel.agents import survey_agents
from lemming.kernel.base.errors import CorruptState, DiskError, UsageError
from lemming.kernel.base.jsontext import parse
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import open_regular
from lemming.kernel.files.fast_decoder import describe_field
from lemming.kernel.files.json_documents import to_value
from lemming.kernel.org.organisation import Organisation, require_known_format
from lemming.kernel.tick.tick_counter import load_tick
from lemming.libraries.atomic_folder import stage_org

if not hasattr(tarfile, "data_filter"):  # Python before 3.11.4, as in Debian 12
    from backports import tarfile  # type: ignore[no-redef]

MANIFEST = ".lemming-backup.json"
SUFFIXES = (".tar.gz", ".tgz")
VERSION = 1
EXCLUDED_NAMES = (".git", ".lemming", MANIFEST)
"""Names left out of a backup: not the organisation's own files, or rebuilt (the history: `lemming history on`)."""


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


NOTHING_RESTORED = "nothing was restored"
_MANIFEST_LIMIT_BYTES, _MAX_MEMBERS = 64 << 20, 20_000_000
_MAX_DEPTH, _MAX_NAME_CHARS = 200, 4096  # the longest path on Linux
_RESERVED_BYTES = 16 << 20


DEFAULT_MAX_BYTES, DEFAULT_MAX_RATIO = 256 << 20, 100
"""Limit of decompression: texts shrink ten to thirty times; a thousand times means a decompression bomb."""


@dataclass(frozen=True)
class RestoreResult:
    """A restored organisation. `broken`: errors of invalid resumes by agent."""

    folder: Path
    tick: int
    manifest: Manifest
    broken: dict[str, str]


def restore_backup(file: Path, folder: Path, *, max_bytes: int | None = None) -> RestoreResult:
    """Restore the organisation of a backup into an empty or new folder.

    `max_bytes` limits the unpacked size. The default is `DEFAULT_MAX_BYTES` plus `DEFAULT_MAX_RATIO` times
    the size of the archive.

    Raises: UsageError for another folder, CorruptState for an incomplete backup, DiskError. The folder then
    stays unchanged.
    """
    with stage_org(folder, "restore") as staged:
        manifest = _unpack(file, staged, max_bytes)
        if not (staged / "agents").is_dir():
            raise damaged_archive_error("it has no agents/ folder")
        require_known_format(staged)
        org = Organisation(staged)
        broken = {name: str(error) for name, error in survey_agents(org).broken.items()}
        return RestoreResult(folder, load_tick(org), manifest, broken)


def _unpack(file: Path, staged: Path, max_bytes: int | None) -> Manifest:
    try:
        with open_regular(file) as raw, tarfile.open(fileobj=raw, mode="r|gz", errorlevel=2) as archive:
            archive_bytes = os.fstat(raw.fileno()).st_size
            limit_bytes = DEFAULT_MAX_BYTES + DEFAULT_MAX_RATIO * archive_bytes if max_bytes is None else max_bytes
            return _unpack_members(archive, staged, limit_bytes)
    except FileNotFoundError as error:
        raise UsageError("the file does not exist", where=str(file), hint="name a backup") from error
    except tarfile.FilterError as error:
        raise damaged_archive_error(f"{error.tarinfo.name!r} must be a regular file inside the archive") from error
    except (tarfile.TarError, zlib.error, EOFError, UnicodeError) as error:
        raise damaged_archive_error(str(error) or "the file is truncated") from error
    except CorruptState as error:
        raise CorruptState(error.message, where=str(file), hint=error.hint) from error
    except DiskError:
        raise
    except OSError as error:
        if error.errno is None:  # from gzip, for data in another format
            raise damaged_archive_error(str(error)) from error
        where, hint = error.filename or file, f"check the disk and the file; {NOTHING_RESTORED}"
        raise DiskError(f"{error.strerror}", where=os.fsdecode(where), hint=hint) from error


def _unpack_members(archive: tarfile.TarFile, staged: Path, max_bytes: int) -> Manifest:
    """Unpack all members up to the manifest at the end, and compare."""
    unpacker, manifest = _Unpacker(archive, staged, max_bytes), None
    while (info := archive.next()) is not None:
        archive.members.clear()  # type: ignore[attr-defined]  # or it keeps all of them
        if manifest is not None:
            raise damaged_archive_error("there is data after the manifest")
        if info.name == MANIFEST and info.isreg() and info.size <= _MANIFEST_LIMIT_BYTES:
            content = archive.extractfile(info)
            manifest = parse_manifest(content.read() if content else b"")
        else:
            unpacker.add_member(info)
    if manifest is None:
        raise damaged_archive_error("it has no manifest: it is truncated, or not a backup")
    if (manifest.files, manifest.root) != (unpacker.digest.files, unpacker.digest.hexdigest()):
        raise damaged_archive_error("its files differ from its manifest")
    return manifest


class _Unpacker:
    """Writer of archive members into a folder; `digest` covers all written members."""

    def __init__(self, archive: tarfile.TarFile, staged: Path, max_bytes: int) -> None:
        self._archive, self._staged, self._max_bytes = archive, staged, max_bytes
        self._free_bytes = shutil.disk_usage(staged).free - _RESERVED_BYTES
        self._names, self._folder, self._bytes = set[str](), "", 0
        self.digest = ArchiveDigest()

    def add_member(self, info: tarfile.TarInfo) -> None:
        """Write a member. Raises: CorruptState and tarfile.FilterError for a forbidden member."""
        if info.name.split("/")[0] in EXCLUDED_NAMES or not (info.isreg() or info.isdir() or info.issym()):
            raise damaged_archive_error(f"{info.name!r} is not allowed in a backup")
        if info.name.count("/") > _MAX_DEPTH or len(info.name) > _MAX_NAME_CHARS:
            raise damaged_archive_error(f"{info.name[:60]!r}... is nested too deep")
        if info.name in self._names or len(self._names) > _MAX_MEMBERS:
            raise damaged_archive_error(f"{info.name!r} appears twice")
        self._names.add(info.name)
        if info.isdir():
            tarfile.data_filter(info, str(self._staged))
            fs.make_folder(self._staged, info.name)  # with the usual mode of an organisation's folder
            return
        self._bytes += info.size
        if self._bytes > self._max_bytes:
            # The sizes of later members are unknown until all data is unpacked: the usual limit is left for them.
            enough = self._bytes + self._max_bytes
            hint = f"if you trust it, run `lemming restore --max-bytes {enough}`; {NOTHING_RESTORED}"
            got = f"{self._bytes} bytes up to {info.name[:200]!r}, which has {info.size}"
            message = f"the backup must unpack to at most {self._max_bytes} bytes, got {got}"
            raise UsageError(message, hint=hint)
        if self._bytes > self._free_bytes:
            hint = f"free some space; {NOTHING_RESTORED}"
            raise DiskError("the disk does not have enough space for the backup", where=str(self._staged), hint=hint)
        folder = info.name.rpartition("/")[0]
        if folder != self._folder:
            tarfile.data_filter(info, str(self._staged))
            fs.make_folder(self._staged, folder or ".")
            self._folder = folder
        self._archive.extract(info, self._staged, filter="data")
        if info.issym():
            link = os.fsencode(os.readlink(self._staged / info.name))
            self.digest.add(info.name, 0, sha256(link).digest())
            self._folder = ""  # check the folder of the next member again
            return
        with open_regular(self._staged / info.name) as file:
            size = os.fstat(file.fileno()).st_size
            self.digest.add(info.name, size, file_digest(file, "sha256").digest())
