"""An organisation from a backup: unpacked beside its place, compared with the manifest, then put in place.

An archive may come from anybody: Python's "data" filter of tarfile refuses what would lead out of the folder,
devices and hard links are refused, and nothing that the manifest does not tell of stays.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import zlib
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path

from lemming.kernel.agents import survey_agents
from lemming.kernel.base.errors import CorruptState, DiskError, UsageError
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import open_regular
from lemming.kernel.files.whole_folder import put_whole
from lemming.kernel.org.format import require_known_format
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.counter import load_tick
from lemming.service.archive import LEFT_OUT, MANIFEST, Manifest, Root, damaged, read_manifest

NOTHING_DONE = "nothing was put in place"
_MANIFEST_LIMIT_BYTES, _MOST_MEMBERS = 64 << 20, 20_000_000
_MOST_LEVELS, _LONGEST_NAME_CHARS = 200, 4096  # Linux opens no longer path
_ROOM_LEFT_BYTES = 16 << 20


USUAL_BYTES, USUAL_RATIO = 256 << 20, 100
"""Texts become ten to thirty times shorter; what becomes a thousand times shorter was made to fill a disk."""


@dataclass(frozen=True)
class Restored:
    """An organisation that was put in place. `broken`: agents whose resumes are."""

    folder: Path
    tick: int
    manifest: Manifest
    broken: dict[str, str]


def restore(file: Path, folder: Path, *, max_bytes: int | None = None) -> Restored:
    """Put the organisation that a backup holds into a folder that is empty or not there.

    `max_bytes`: how much it may hold when unpacked; else `USUAL_BYTES`, and `USUAL_RATIO` times its own size.

    Raises `UsageError` for a folder that is neither, `CorruptState` for an archive that is not a whole
    backup, `DiskError`. Then the folder is as it was.
    """
    with put_whole(folder, "restore") as staged:
        manifest = _unpack(file, staged, max_bytes)
        tick, broken = _looked_at(staged)
    return Restored(folder, tick, manifest, broken)


def _looked_at(staged: Path) -> tuple[int, dict[str, str]]:
    """Return the tick and what is wrong with resumes; raise `CorruptState` for what is no organisation."""
    if not (staged / "agents").is_dir():
        raise damaged("there is no agents/ folder in it")
    require_known_format(staged)
    org = Organisation(staged)
    return load_tick(org), {name: str(error) for name, error in survey_agents(org).broken.items()}


def _unpack(file: Path, staged: Path, max_bytes: int | None) -> Manifest:
    if not hasattr(tarfile, "data_filter"):
        raise UsageError("this Python cannot unpack safely", hint="use Python 3.11.4 or newer")
    try:
        with open_regular(file) as raw, tarfile.open(fileobj=raw, mode="r|gz", errorlevel=2) as archive:
            packed = os.fstat(raw.fileno()).st_size
            most = USUAL_BYTES + USUAL_RATIO * packed if max_bytes is None else max_bytes
            return _take(archive, staged, most)
    except FileNotFoundError as error:
        raise UsageError("there is no such file", where=str(file), hint="name a backup") from error
    except tarfile.FilterError as error:
        raise damaged(f"{error.tarinfo.name!r} in it leads elsewhere or is no plain file") from error
    except (tarfile.TarError, zlib.error, EOFError, UnicodeError) as error:
        raise damaged(str(error) or "it ends too soon") from error
    except CorruptState as error:
        raise CorruptState(error.message, where=str(file), hint=error.hint) from error
    except OSError as error:
        if isinstance(error, DiskError):
            raise
        raise _of_the_disk(file, error) from error


def _of_the_disk(file: Path, error: OSError) -> CorruptState | DiskError:
    """Return what an error of the system says: gzip raises one, too, for what is not gzip."""
    if error.errno is None:
        return damaged(str(error))
    where = os.fsdecode(error.filename) if error.filename else str(file)
    return DiskError(
        f"{error.strerror}", where=where, hint="check the disk and the file; nothing was put in place"
    )


def _take(archive: tarfile.TarFile, staged: Path, max_bytes: int) -> Manifest:
    """Unpack everything up to the manifest, which is the last, and compare."""
    unpacking, manifest = _Unpacking(archive, staged, max_bytes), None
    while (info := archive.next()) is not None:
        archive.members.clear()  # type: ignore[attr-defined]  # or it keeps all of them
        if manifest is not None:
            raise damaged("something follows its manifest")
        if info.name == MANIFEST and info.isreg() and info.size <= _MANIFEST_LIMIT_BYTES:
            content = archive.extractfile(info)
            manifest = read_manifest(content.read() if content else b"")
        else:
            unpacking.put(info)
    if manifest is None:
        raise damaged("it has no manifest, so it was cut short or is something else")
    if (manifest.files, manifest.root) != (unpacking.root.files, unpacking.root.hexdigest()):
        raise damaged("its files are not those that its manifest tells of")
    return manifest


class _Unpacking:
    """Puts members into a folder one by one; `root` is the digest of what has been put."""

    def __init__(self, archive: tarfile.TarFile, staged: Path, max_bytes: int) -> None:
        self._max_bytes = self._allowed_bytes = max_bytes
        self._archive, self._staged = archive, staged
        self._room_bytes = shutil.disk_usage(staged).free - _ROOM_LEFT_BYTES
        self._seen: set[str] = set()
        self._folder = ""
        self.root = Root()

    def put(self, info: tarfile.TarInfo) -> None:
        """Put one member; raise `CorruptState` and `tarfile.FilterError` for what does not belong there."""
        if info.name.split("/")[0] in LEFT_OUT or not (info.isreg() or info.isdir() or info.issym()):
            raise damaged(f"{info.name!r} does not belong into a backup")
        if info.name.count("/") > _MOST_LEVELS or len(info.name) > _LONGEST_NAME_CHARS:
            raise damaged(f"{info.name[:60]!r}... in it lies deeper than any file of an organisation")
        if info.name in self._seen or len(self._seen) > _MOST_MEMBERS:
            raise damaged(f"{info.name!r} is in it twice")
        self._seen.add(info.name)
        if info.isdir():
            tarfile.data_filter(info, str(self._staged))
            fs.make_folder(self._staged, info.name)  # with the mode that it has in an organisation
            return
        self._allowed_bytes -= info.size
        if self._allowed_bytes < 0:
            hint = f"if you know where it comes from: lemming restore --max-bytes N; {NOTHING_DONE}"
            message = f"it would unpack to more than {self._max_bytes} bytes, far more than such a file holds"
            raise UsageError(message, hint=hint)
        self._room_bytes -= info.size
        if self._room_bytes < 0:
            hint = f"free some space; {NOTHING_DONE}"
            raise DiskError("there is no room for it", where=str(self._staged), hint=hint)
        self._put_file(info)

    def _put_file(self, info: tarfile.TarInfo) -> None:
        folder = info.name.rpartition("/")[0]
        if folder != self._folder:
            tarfile.data_filter(info, str(self._staged))
            fs.make_folder(self._staged, folder or ".")
            self._folder = folder
        self._archive.extract(info, self._staged, filter="data")
        if info.issym():
            link = os.fsencode(os.readlink(self._staged / info.name))
            self.root.add(info.name, 0, sha256(link).digest())
            self._folder = ""  # the next one is looked at afresh
            return
        with open_regular(self._staged / info.name) as file:
            size = os.fstat(file.fileno()).st_size
            self.root.add(info.name, size, file_digest(file, "sha256").digest())
