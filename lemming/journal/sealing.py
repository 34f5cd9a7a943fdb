"""Old journals, packed: `logs/ticks/sealed/00000000-00000099.zip` holds the journals of a hundred ticks.

A packed journal stays readable, by every command and with `unzip -p`, until `kept_journals` has it go.
Packing is safe to repeat: the segment is published whole before the journals it holds are removed.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import struct
import weakref
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING

from lemming import paths
from lemming.errors import CorruptState
from lemming.files import fs
from lemming.files.descriptors import open_regular
from lemming.files.listings import ABSENT, Listing, list_again
from lemming.files.stamps import status_of

if TYPE_CHECKING:
    from zipfile import ZipFile

SEALED = f"{paths.JOURNALS}/sealed"
TICKS_PER_SEGMENT = 100
QUICK = 3  # half the time of the usual 6, for an eighth more bytes
SEGMENT_LIMIT_BYTES = 512 << 20  # of journals, packed or not: a hundred that are larger stay as they are
JOURNAL_LIMIT_BYTES = 192 << 20
"""No journal that is larger is read: looking at an organisation must not take all memory there is."""
_DIRECTORY_LIMIT_BYTES = 64 << 10  # a segment's list of the journals in it takes a tenth of that
_DIRECTORY_END = struct.Struct("<4s4H2LH")  # what a zip file ends with, without a comment
_PACKED_BY = (0, 8)  # as it is, or deflated
_LOCATOR_BYTES = 20  # of a longer end than this, which no segment needs
_SEGMENT = re.compile(r"([0-9]{8,12})-([0-9]{8,12})\.zip\Z")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # a fixed time, so that the same journals give the same bytes


def seal_old_journals(base: Path, tick: int, kept: int) -> list[str]:
    """Pack the journals of every full hundred of ticks older than `kept` ticks; return the new segments."""
    sealed = []
    for first in sorted({at - at % TICKS_PER_SEGMENT for at in plain_ticks(base) if at < tick - kept}):
        if first + TICKS_PER_SEGMENT > tick - kept:
            continue
        ticks = [at for at in plain_ticks(base) if first <= at < first + TICKS_PER_SEGMENT]
        whole = [at for at in ticks if _is_over(base, at)]
        sizes = [status_of(f"{base}/{paths.journal_file(at)}").st_size for at in whole]
        if whole and sum(sizes) <= SEGMENT_LIMIT_BYTES:
            sealed.append(_seal(base, first, whole))
    return sealed


def remove_old_segments(base: Path, tick: int, kept: int) -> list[str]:
    """Remove the segments of which every tick is older than `kept` ticks; return their paths."""
    old = [
        f"{SEALED}/{segment}"
        for segment in fs.list_names(f"{base}/{SEALED}")
        if (match := _SEGMENT.match(segment)) and int(match[2]) < tick - kept
    ]
    for segment in old:
        fs.remove(base, segment)
    return old


def plain_ticks(base: Path) -> list[int]:
    """Return the ticks whose journal is a file of its own, ascending; the list is not to be changed."""
    latest = _latest(base)
    listing, ticks = latest[0] if latest else (None, [])
    current = list_again(f"{base}/{paths.JOURNALS}", listing)
    if current is not listing:
        ticks = sorted(int(match[1]) for name in current.names if (match := paths.JOURNAL_FILE.match(name)))
        latest[:] = [(current, ticks)]
    return ticks


@contextlib.contextmanager
def beginning(base: Path, tick: int) -> Iterator[None]:
    """Take note that the block makes the journal of a tick, so that the others need not be listed again."""
    folder = f"{base}/{paths.JOURNALS}"
    latest = _latest(base)
    listing, ticks = latest[0] if latest else (ABSENT, [])
    if not listing.is_settled or (ticks and tick <= ticks[-1]):
        yield
        return
    before = status_of(folder)
    yield
    if after := listing.after_change((before, status_of(folder))):
        latest[:] = [(after, [*ticks, tick])]


@lru_cache(maxsize=8)
def _latest(base: Path) -> list[tuple[Listing, list[int]]]:
    """Return where the latest listing of an organisation's journals is kept, with the ticks it names."""
    return []


def sealed_ticks(base: Path, *, newest: int | None = None) -> list[int]:
    """Return the ticks whose journal is in a segment, ascending. Raises `CorruptState` for a damaged one.

    With `newest`, so many are enough: older segments are not opened.
    """
    ticks: list[int] = []
    segments = [match for name in fs.list_names(f"{base}/{SEALED}") if (match := _SEGMENT.match(name))]
    for segment in sorted(segments, key=lambda match: -int(match[1])):
        if newest is not None and len(ticks) >= newest:
            break
        names = _open(base, f"{SEALED}/{segment[0]}").namelist()
        ticks += [int(match[1]) for name in names if (match := paths.JOURNAL_FILE.match(name))]
    return sorted(ticks)


def open_sealed(base: Path, tick: int) -> IO[bytes] | None:
    """Open a packed journal to read from; None when no segment holds that tick.

    Raises `CorruptState` for a segment that is damaged, or larger unpacked than a journal is; what is read
    may raise `BadZipFile` and `zlib.error`, as in `unpacking`.
    """
    segment, name = segment_of(tick), f"{tick:08d}.jsonl"
    try:
        archive = _open(base, segment)
    except FileNotFoundError:
        return None
    with unpacking(tick):
        try:
            packed = archive.getinfo(name)
        except KeyError:
            return None
        if packed.file_size > JOURNAL_LIMIT_BYTES or packed.compress_type not in _PACKED_BY:
            raise _damaged(segment, f"{name}, of {packed.file_size} bytes, is not what the engine packed")
        return archive.open(packed)


@contextlib.contextmanager
def unpacking(tick: int) -> Iterator[None]:
    """Raise `CorruptState` that names the segment for what goes wrong as the block reads from it."""
    import zlib
    from zipfile import BadZipFile

    try:
        yield
    except (BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error, OSError) as error:
        raise _damaged(segment_of(tick), error) from error


def read_sealed(base: Path, tick: int) -> bytes | None:
    """Return the bytes of a packed journal; None when no segment holds that tick."""
    if (file := open_sealed(base, tick)) is None:
        return None
    with unpacking(tick), file:
        return file.read()


def _is_over(base: Path, tick: int) -> bool:
    """Return whether a journal says that its tick was committed; others are a person's to look at."""
    file = f"{base}/{paths.journal_file(tick)}"
    try:
        if status_of(file).st_size > JOURNAL_LIMIT_BYTES:
            return False
        lines = fs.read_tail(file, 4096, 1).splitlines()
    except OSError:
        return False
    return bool(lines) and lines[-1].startswith(b'{"type":"tick_committed"')


def segment_of(tick: int) -> str:
    """Return the path of the segment that holds a tick's journal once it is packed."""
    first = tick - tick % TICKS_PER_SEGMENT
    return f"{SEALED}/{first:08d}-{first + TICKS_PER_SEGMENT - 1:08d}.zip"


def _seal(base: Path, first: int, ticks: list[int]) -> str:
    from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

    segment, packed = segment_of(first), io.BytesIO()
    with ZipFile(packed, "w") as archive:
        for tick in range(first, first + TICKS_PER_SEGMENT):
            if tick in ticks:
                raw = fs.read_bytes(f"{base}/{paths.journal_file(tick)}", JOURNAL_LIMIT_BYTES)
            elif not (raw := read_sealed(base, tick) or b""):
                continue
            archive.writestr(ZipInfo(f"{tick:08d}.jsonl", _EPOCH), raw, ZIP_DEFLATED, QUICK)
    fs.publish(base, segment, packed.getvalue(), sync=True)
    for tick in ticks:
        fs.remove(base, paths.journal_file(tick))
    return segment


def _open(base: Path, segment: str) -> ZipFile:
    """Open a segment; the few last used stay in memory. Raises `FileNotFoundError`, `CorruptState`."""
    try:
        status = status_of(f"{base}/{segment}")
    except NotADirectoryError as error:
        raise _damaged(SEALED, error) from error
    from zipfile import BadZipFile

    try:
        return _opened(f"{base}/{segment}", status.st_mtime_ns, status.st_size)
    except FileNotFoundError:
        raise
    except (BadZipFile, NotImplementedError, OSError, ValueError) as error:
        raise _damaged(segment, error) from error


@lru_cache(maxsize=4)
def _opened(path: str, _mtime_ns: int, _size: int) -> ZipFile:
    from zipfile import ZipFile

    file = open_regular(path)
    try:
        _require_short_directory(file)
        archive = ZipFile(file)
    except BaseException:
        file.close()
        raise
    weakref.finalize(archive, file.close)
    return archive


def _require_short_directory(file: IO[bytes]) -> None:
    """Raise `OSError` for a file with a list of names that no segment has: it would all be read."""
    end = file.seek(0, os.SEEK_END)
    file.seek(max(0, end - _DIRECTORY_END.size - _LOCATOR_BYTES))
    before, found = file.read(_LOCATOR_BYTES), file.read()
    if len(found) < _DIRECTORY_END.size or not found.startswith(b"PK\5\6") or before[:4] == b"PK\6\7":
        raise OSError(errno.EINVAL, "it does not end as a zip file of this engine does")
    count, size = _DIRECTORY_END.unpack(found)[4:6]
    if count > TICKS_PER_SEGMENT or size > _DIRECTORY_LIMIT_BYTES:
        raise OSError(errno.EFBIG, f"it lists {count} files; a segment holds {TICKS_PER_SEGMENT} journals")


def _damaged(segment: str, error: Exception | str) -> CorruptState:
    hint = "restore it from a backup, or move it away to give up the record of these ticks"
    return CorruptState(f"the sealed journals are damaged: {error}", where=segment, hint=hint)
