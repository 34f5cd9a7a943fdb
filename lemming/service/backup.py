"""A backup: an archive of an organisation's files as they stand between two ticks, also beside an engine.

Without an engine the lock is held meanwhile. Beside one, the journals prove that no tick was under way from
the first file that was read to the last: else it is done again. The archive gets its name when it is whole.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import time
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from lemming.kernel.agents import survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.deadlines import Deadline
from lemming.kernel.base.errors import OrgBusy, UsageError
from lemming.kernel.base.version import __version__
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import open_regular
from lemming.kernel.journal.file import is_committed
from lemming.kernel.journal.sealing import SEALED, plain_ticks
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.counter import load_tick
from lemming.kernel.tick.holder import holder_of
from lemming.kernel.tick.runtime import open_org
from lemming.service.archive import MANIFEST, SUFFIXES, VERSION, Manifest, Root, cannot_read, members

COMPRESSION = 6
LOOK_S = 0.1
_RUNNERS = ("run-once", "run-forever", "run_tick")
_BLOCK_BYTES = 1 << 20


class _Changed(Exception):
    """Something was written while it was read."""


@dataclass(frozen=True)
class Backup:
    """An archive that was written. `left_out`: what of the organisation is not in it, and why."""

    file: Path
    archive_bytes: int
    manifest: Manifest
    left_out: list[str]


def back_up(org: Organisation, file: Path, *, wait_s: float, replace: bool = False) -> Backup:
    """Write an archive of an organisation; wait so long at most for a moment without a tick.

    Nothing is left behind by one that fails. Raises `UsageError` for a place that will not do, `OrgBusy` when
    there was no such moment, `CorruptState` and `DiskError`.
    """
    _require_place(org.base, file, replace=replace)
    deadline = Deadline(wait_s)
    while True:
        try:
            with open_org(org, command="backup"):
                return _write(org, file)
        except OrgBusy as busy:
            if done := _beside(org, file, deadline):
                return done
            if deadline.has_passed:
                raise _no_moment(org, wait_s, busy) from busy


def place_for(org: Organisation, given: Path) -> Path:
    """Return the file to write: the one given, or one named by organisation and time in the folder given."""
    if not given.is_dir():
        return given
    at = timestamp(SystemClock().now())[:19].replace("-", "").replace(":", "")
    return given / f"{org.base.resolve().name or 'org'}-{at}Z{SUFFIXES[0]}"


def _require_place(base: Path, file: Path, *, replace: bool) -> None:
    if not file.name.endswith(SUFFIXES):
        raise UsageError(f'"{file.name}" says no format', hint=f"name it {file.stem}{SUFFIXES[0]}")
    if not file.parent.is_dir():
        raise UsageError("there is no such folder", where=str(file.parent), hint="make it first")
    if file.parent.resolve().is_relative_to(base.resolve()):
        hint = f"name a file elsewhere: {base.resolve().parent / file.name}"
        raise UsageError("a backup cannot be inside the organisation", where=str(file), hint=hint)
    if os.path.lexists(file) and not (replace and file.is_file()):
        raise UsageError("there is something already", where=str(file), hint="another name, or --force")


def _beside(org: Organisation, file: Path, deadline: Deadline) -> Backup | None:
    """Write an archive beside an engine; None when that was not possible for now."""
    while not deadline.has_passed and holder_of(org):
        if (before := _fence(org)) is None:
            time.sleep(LOOK_S)
            continue
        try:
            return _write(org, file, before)
        except _Changed:
            continue
    return None


def _fence(org: Organisation) -> tuple[Any, ...] | None:
    """Return what stays the same for as long as no tick writes; None while one does, or something else does.

    A tick that writes makes a journal first, and closes it last.
    """
    holder = holder_of(org)
    if holder is None or holder.get("command") not in _RUNNERS:
        return None
    known = Organisation(org.base)
    ticks = plain_ticks(known)
    if ticks and not is_committed(known, ticks[-1]):
        return None
    return holder.get("epoch"), _stamps(org.base / paths.JOURNALS), _stamps(org.base / SEALED)


def _stamps(folder: Path) -> list[tuple[str, int, int]]:
    try:
        with os.scandir(folder) as entries:
            statuses = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
    except FileNotFoundError:
        return []
    return sorted((name, status.st_size, status.st_mtime_ns) for name, status in statuses)


def _no_moment(org: Organisation, wait_s: float, busy: OrgBusy) -> OrgBusy:
    hint = (
        "`lemming pause`, `lemming backup`, `lemming resume`; or --wait for longer; or end the engine first: "
        "nothing is lost, and a backup then waits for nobody"
    )
    return OrgBusy(
        f"for {wait_s:g} s there was always a tick under way: {busy.message}", where=str(org.base), hint=hint
    )


def _write(org: Organisation, file: Path, before: tuple[Any, ...] | None = None) -> Backup:
    """Write the archive beside its place, look whether it is of one moment, and give it its name."""
    temporary = f".{file.name}.tmp"
    left_out: list[str] = []
    fs.remove(file.parent, temporary)  # of a backup that was killed
    try:
        with fs.AppendFile(file.parent, temporary, mode=0o600) as raw:
            writer = _Writer(raw)
            manifest = _pack(org, writer, left_out)
            writer.flush()
            if before is not None and _fence(org) != before:
                raise _Changed
            raw.sync()  # before it has its name
            size = raw.size
        fs.move(file.parent, temporary, file.name)
    except BaseException:
        fs.remove(file.parent, temporary)
        raise
    return Backup(file, size, manifest, left_out)


def _pack(org: Organisation, file: Any, left_out: list[str]) -> Manifest:
    root = Root()
    with (
        # No time in the head: the same files make the same archive.
        gzip.GzipFile(fileobj=file, mode="wb", compresslevel=COMPRESSION, filename="", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT, errorlevel=2) as archive,
    ):
        for member in members(org.base, left_out):
            archive.members.clear()  # type: ignore[attr-defined]  # or it keeps all of them
            info = _header(member.name, member.status)
            if member.link:
                info.type, info.linkname = tarfile.SYMTYPE, member.link
                archive.addfile(info)
                root.add(member.name, 0, sha256(os.fsencode(member.link)).digest())
            elif stat.S_ISDIR(member.status.st_mode):
                info.type = tarfile.DIRTYPE
                archive.addfile(info)
            else:
                _add_file(org.base, archive, info, root)
        manifest = _manifest(org, root)
        info = tarfile.TarInfo(MANIFEST)
        info.size = len(raw := manifest.as_bytes())
        archive.addfile(info, io.BytesIO(raw))
    return manifest


def _header(name: str, status: os.stat_result) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.mode, info.mtime = status.st_mode & 0o777, int(status.st_mtime)
    return info


def _add_file(base: Path, archive: tarfile.TarFile, info: tarfile.TarInfo, root: Root) -> None:
    try:
        with open_regular(base / info.name) as file:
            info.size = os.fstat(file.fileno()).st_size
            reader = _Reader(file, info.size)
            archive.addfile(info, cast(Any, reader))
    except FileNotFoundError:  # removed a moment ago
        return
    except OSError as error:
        if isinstance(error, tarfile.TarError) or error.filename is None:
            raise
        raise cannot_read(base, info.name, error) from error
    root.add(info.name, info.size, reader.digest.digest())


def _manifest(org: Organisation, root: Root) -> Manifest:
    survey = survey_agents(Organisation(org.base))
    return Manifest(
        version=VERSION,
        lemming=__version__,
        made_at=timestamp(SystemClock().now()),
        org=org.base.resolve().name,
        tick=load_tick(org.base),
        agents=sorted({*survey.agents, *survey.broken}),
        files=root.files,
        content_bytes=root.content_bytes,
        root=root.hexdigest(),
    )


class _Reader:
    """The first `size` bytes of a file, as they stood when it was opened, and their digest."""

    def __init__(self, file: Any, size: int) -> None:
        self._file, self._left = file, size
        self.digest = sha256()

    def read(self, count: int) -> bytes:
        raw: bytes = self._file.read(min(count, self._left))
        if len(raw) < min(count, self._left):
            raise _Changed  # it was cut while it was read
        self._left -= len(raw)
        self.digest.update(raw)
        return raw


class _Writer:
    """What `tarfile` and `gzip` write to."""

    def __init__(self, file: fs.AppendFile) -> None:
        self._file = file
        self._held = bytearray()

    def write(self, raw: bytes) -> int:
        self._held += raw
        if len(self._held) >= _BLOCK_BYTES:
            self.flush()
        return len(raw)

    def flush(self) -> None:
        """Write what is held."""
        self._file.append(bytes(self._held))
        self._held.clear()
