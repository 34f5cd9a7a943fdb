"""Backup: an archive of an organisation's files in the state between two ticks, with or without a running engine.

Without an engine the backup holds the lock. With an engine, the journals prove the absence of a tick between the first
and the last read file; otherwise the backup starts again. The archive gets its final name only when complete.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from lemming.kernel.agents import survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.blocking_deadline import Deadline
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.errors import DiskError, OrgBusy, UsageError
from lemming.kernel.base.jsontext import dump_pretty_flat
from lemming.kernel.base.version import __version__
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import open_regular
from lemming.kernel.files.disk_errors import write_error
from lemming.kernel.files.safe_folder import is_temporary
from lemming.kernel.journal.journal_file import is_committed
from lemming.kernel.journal.journal_segments import SEALED_FOLDER, plain_ticks
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.tick_counter import load_tick
from lemming.libraries.atomic_folder import require_outside
from lemming.operations.backup_archive import EXCLUDED_NAMES, MANIFEST, SUFFIXES, VERSION, ArchiveDigest, Manifest
from lemming.operations.engine_lock import load_holder
from lemming.operations.open_org import open_org

COMPRESSION = 6
POLL_S = 0.1
_ENGINE_COMMANDS = ("run-once", "run-forever", "run_tick")
_BLOCK_BYTES = 1 << 20
_CACHE_FOLDERS = ("__pycache__",)


class _ChangedDuringBackup(Exception):
    """Raised when a file changes during the backup."""


@dataclass(frozen=True)
class Backup:
    """A finished archive. `left_out`: the omitted files with the reasons."""

    file: Path
    archive_bytes: int
    manifest: Manifest
    left_out: list[str]


def create_backup(org: Organisation, file: Path, *, wait_s: float, replace: bool = False) -> Backup:
    """Write an archive of an organisation, and wait at most `wait_s` seconds for a pause between ticks.

    A failed backup leaves no file behind. Raises: UsageError for an unsuitable target, OrgBusy without a pause in time,
    CorruptState, DiskError.
    """
    _require_valid_target(org.base, file, replace=replace)
    deadline = Deadline(wait_s)
    while True:
        try:
            with open_org(org, command="backup"):
                return _write_archive(org, file)
        except OrgBusy as busy:
            if backup := _backup_between_ticks(org, file, deadline):
                return backup
            if deadline.has_passed:
                hint = "pause first (`lemming pause`, `lemming backup`, `lemming unpause`), raise --wait, or stop the engine"
                message = f"ticks were running for all of {wait_s:g} s: {busy.message}"
                raise OrgBusy(message, where=str(org.base), hint=hint) from busy


def resolve_archive_path(org: Organisation, target: Path) -> Path:
    """Return the archive path: the target itself, or a file in the target folder named by organisation and time."""
    if not target.is_dir():
        return target
    time_text = timestamp(SystemClock().now())[:19].replace("-", "").replace(":", "")
    return target / f"{org.base.resolve().name or 'org'}-{time_text}Z{SUFFIXES[0]}"


def _require_valid_target(base: Path, file: Path, *, replace: bool) -> None:
    if not file.name.endswith(SUFFIXES):
        raise UsageError(
            f'the name of a backup must end in {" or ".join(SUFFIXES)}, got "{file.name}"',
            hint=f"name it {file.stem}{SUFFIXES[0]}",
        )
    if not file.parent.is_dir():
        raise UsageError("the folder does not exist", where=str(file.parent), hint="create it first")
    require_outside(base, file.parent, subject="a backup")
    if os.path.lexists(file) and not (replace and file.is_file()):
        raise UsageError("the file already exists", where=str(file), hint="choose another name, or add --force")


def _backup_between_ticks(org: Organisation, file: Path, deadline: Deadline) -> Backup | None:
    """Write an archive while an engine runs, or return None at the deadline or after the engine's end."""
    while not deadline.has_passed and load_holder(org):
        if (fence := _read_write_fence(org)) is None:
            time.sleep(POLL_S)
            continue
        try:
            return _write_archive(org, file, fence)
        except _ChangedDuringBackup:
            continue
    return None


def _read_write_fence(org: Organisation) -> tuple[Any, ...] | None:
    """Return a value that changes with every writing tick. None: a tick or another command is writing.

    A writing tick first creates a journal, and closes the journal last.
    """
    holder = load_holder(org)
    if holder is None or holder.get("command") not in _ENGINE_COMMANDS:
        return None
    fresh_org = Organisation(org.base)
    ticks = plain_ticks(fresh_org)
    if ticks and not is_committed(fresh_org, ticks[-1]):
        return None
    return holder.get("epoch"), _stat_files(org.base / paths.JOURNALS), _stat_files(org.base / SEALED_FOLDER)


def _stat_files(folder: Path) -> list[tuple[str, int, int]]:
    try:
        with os.scandir(folder) as entries:
            statuses = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
    except FileNotFoundError:
        return []
    return sorted((name, status.st_size, status.st_mtime_ns) for name, status in statuses)


def _write_archive(org: Organisation, file: Path, fence: tuple[Any, ...] | None = None) -> Backup:
    """Write the archive under a temporary name, check the fence, and give the archive the final name."""
    temporary = f".{file.name}.tmp"
    omitted: list[str] = []
    fs.remove(file.parent, temporary)  # left by a killed backup
    try:
        with fs.AppendFile(file.parent, temporary, mode=0o600) as output:
            writer = _Writer(output)
            manifest = _add_members(org, writer, omitted)
            writer.flush()
            if fence is not None and _read_write_fence(org) != fence:
                raise _ChangedDuringBackup
            output.sync()  # durable before the rename
            size = output.size
        fs.move(file.parent, temporary, file.name)
    except BaseException:
        fs.remove(file.parent, temporary)
        raise
    return Backup(file, size, manifest, omitted)


def _add_members(org: Organisation, output: Any, omitted: list[str]) -> Manifest:
    digest = ArchiveDigest()
    with (
        # No time in the header: equal files give equal archives.
        gzip.GzipFile(fileobj=output, mode="wb", compresslevel=COMPRESSION, filename="", mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w|", format=tarfile.PAX_FORMAT, errorlevel=2) as archive,
    ):
        for member in _iter_members(org.base, omitted):
            archive.members.clear()  # type: ignore[attr-defined]  # or it keeps all of them
            info, status = tarfile.TarInfo(member.name), member.status
            info.mode, info.mtime = status.st_mode & 0o777, int(status.st_mtime)
            if member.link:
                info.type, info.linkname = tarfile.SYMTYPE, member.link
                archive.addfile(info)
                digest.add(member.name, 0, sha256(os.fsencode(member.link)).digest())
            elif stat.S_ISDIR(status.st_mode):
                info.type = tarfile.DIRTYPE
                archive.addfile(info)
            else:
                _add_file(org.base, archive, info, digest)
        manifest = _build_manifest(org, digest)
        info, raw = tarfile.TarInfo(MANIFEST), dump_pretty_flat(asdict(manifest))
        info.size = len(raw)
        archive.addfile(info, io.BytesIO(raw))
    return manifest


def _add_file(base: Path, archive: tarfile.TarFile, info: tarfile.TarInfo, digest: ArchiveDigest) -> None:
    try:
        with open_regular(base / info.name) as file:
            info.size = os.fstat(file.fileno()).st_size
            reader = _HashingReader(file, info.size)
            archive.addfile(info, cast(Any, reader))
    except FileNotFoundError:  # removed a moment ago
        return
    except OSError as error:
        if isinstance(error, tarfile.TarError) or error.filename is None:
            raise
        raise _make_read_error(base, info.name, error) from error
    digest.add(info.name, info.size, reader.digest.digest())


def _build_manifest(org: Organisation, digest: ArchiveDigest) -> Manifest:
    survey = survey_agents(Organisation(org.base))
    return Manifest(
        version=VERSION,
        lemming=__version__,
        made_at=timestamp(SystemClock().now()),
        org=org.base.resolve().name,
        tick=load_tick(org.base),
        agents=sorted({*survey.agents, *survey.broken}),
        files=digest.files,
        content_bytes=digest.content_bytes,
        root=digest.hexdigest(),
    )


@dataclass(frozen=True)
class _Member:
    """A folder, file or link to archive."""

    name: str
    status: os.stat_result
    link: str = ""


def _iter_members(base: Path, omitted: list[str]) -> Iterator[_Member]:
    """Yield the members of a backup sorted, folders first, and append omissions to `omitted`. Raises: DiskError."""
    pending = [""]
    while pending:
        folder = pending.pop()
        subfolders = []
        for name in _list_names(base, folder):
            if name in _CACHE_FOLDERS or is_temporary(name) or (not folder and name in EXCLUDED_NAMES):
                continue
            if member := _make_member(base, f"{folder}{name}", omitted):
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
        raise _make_read_error(base, folder, error) from error


def _make_member(base: Path, name: str, omitted: list[str]) -> _Member | None:
    try:
        status = os.lstat(base / name)
        if stat.S_ISLNK(status.st_mode):
            link = os.readlink(base / name)
            destination = os.path.normpath(os.path.join(os.path.dirname(name), link))
            if os.path.isabs(link) or destination == ".." or destination.startswith("../"):
                omitted.append(f"{name}: a link that leads outside")
                return None
            return _Member(name, status, link)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _make_read_error(base, name, error) from error
    if stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode):
        return _Member(name, status)
    omitted.append(f"{name}: no file")
    return None


def _make_read_error(base: Path, name: str, error: OSError) -> DiskError:
    """Return the error for an unreadable file of the organisation."""
    refusal: Any = write_error(base, name, error)
    return DiskError(f"cannot read: {error.strerror or error}", where=refusal.where, hint=refusal.hint)


class _HashingReader:
    """Reader of the first `size` bytes of an open file, with their digest."""

    def __init__(self, file: Any, size: int) -> None:
        self._file, self._remaining = file, size
        self.digest = sha256()

    def read(self, count: int) -> bytes:
        raw: bytes = self._file.read(min(count, self._remaining))
        if len(raw) < min(count, self._remaining):
            raise _ChangedDuringBackup  # the file was truncated during the read
        self._remaining -= len(raw)
        self.digest.update(raw)
        return raw


class _Writer:
    """Buffered output for `tarfile` and `gzip`."""

    def __init__(self, file: fs.AppendFile) -> None:
        self._file = file
        self._buffer = bytearray()

    def write(self, raw: bytes) -> int:
        self._buffer += raw
        if len(self._buffer) >= _BLOCK_BYTES:
            self.flush()
        return len(raw)

    def flush(self) -> None:
        """Write the buffer to the file."""
        self._file.append(bytes(self._buffer))
        self._buffer.clear()
