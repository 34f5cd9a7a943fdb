"""Old journals, packed: `logs/ticks/sealed/00000000-00000099.zip` holds the journals of a hundred ticks.

A packed journal stays readable, by every command and with `unzip -p`, until `kept_journals` has it go.
Packing is safe to repeat: the segment is published whole before the journals it holds are removed.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from lemming import fs, paths
from lemming.errors import CorruptState
from lemming.listings import ABSENT, Listing, list_again
from lemming.readings import status_of

if TYPE_CHECKING:
    from zipfile import ZipFile

SEALED = f"{paths.JOURNALS}/sealed"
TICKS_PER_SEGMENT = 100
QUICK = 3  # half the time of the usual 6, for an eighth more bytes
SEGMENT_LIMIT_BYTES = 4 << 30
_SEGMENT = re.compile(r"([0-9]{8,12})-([0-9]{8,12})\.zip\Z")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # a fixed time, so that the same journals give the same bytes


def seal_old_journals(base: Path, tick: int, kept: int) -> list[str]:
    """Pack the journals of every full hundred of ticks older than `kept` ticks; return the new segments."""
    sealed = []
    for first in sorted({at - at % TICKS_PER_SEGMENT for at in plain_ticks(base) if at < tick - kept}):
        if first + TICKS_PER_SEGMENT > tick - kept:
            continue
        ticks = [at for at in plain_ticks(base) if first <= at < first + TICKS_PER_SEGMENT]
        if whole := [at for at in ticks if _is_over(base, at)]:
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
    listing = listing.with_name(f"{tick:08d}.jsonl", (before, status_of(folder)))
    latest[:] = [(listing, [*ticks, tick] if listing.is_settled else ticks)]


@lru_cache(maxsize=8)
def _latest(base: Path) -> list[tuple[Listing, list[int]]]:
    """Return where the latest listing of an organisation's journals is kept, with the ticks it names."""
    return []


def sealed_ticks(base: Path) -> list[int]:
    """Return the ticks whose journal is in a segment, ascending. Raises `CorruptState` for a damaged one."""
    return sorted(
        int(match[1])
        for segment in fs.list_names(f"{base}/{SEALED}")
        if _SEGMENT.match(segment)
        for name in _open(base, f"{SEALED}/{segment}").namelist()
        if (match := paths.JOURNAL_FILE.match(name))
    )


def read_sealed(base: Path, tick: int) -> bytes | None:
    """Return the bytes of a packed journal; None when no segment holds that tick."""
    segment = _segment_of(tick)
    try:
        archive = _open(base, segment)
    except FileNotFoundError:
        return None
    import zlib
    from zipfile import BadZipFile

    try:
        return archive.read(f"{tick:08d}.jsonl")
    except KeyError:
        return None
    except (BadZipFile, zlib.error) as error:
        raise _damaged(segment, error) from error


def _is_over(base: Path, tick: int) -> bool:
    """Return whether a journal says that its tick was committed; others are a person's to look at."""
    lines = fs.read_tail(f"{base}/{paths.journal_file(tick)}", 4096, 1).splitlines()
    return bool(lines) and lines[-1].startswith(b'{"type":"tick_committed"')


def _segment_of(tick: int) -> str:
    first = tick - tick % TICKS_PER_SEGMENT
    return f"{SEALED}/{first:08d}-{first + TICKS_PER_SEGMENT - 1:08d}.zip"


def _seal(base: Path, first: int, ticks: list[int]) -> str:
    from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

    segment, packed = _segment_of(first), io.BytesIO()
    journals = {
        tick: raw for tick in range(first, first + TICKS_PER_SEGMENT) if (raw := read_sealed(base, tick))
    }
    for tick in ticks:
        journals[tick] = fs.read_bytes(f"{base}/{paths.journal_file(tick)}", SEGMENT_LIMIT_BYTES)
    with ZipFile(packed, "w") as archive:
        for tick in sorted(journals):
            archive.writestr(ZipInfo(f"{tick:08d}.jsonl", _EPOCH), journals[tick], ZIP_DEFLATED, QUICK)
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
    except (BadZipFile, OSError) as error:
        raise _damaged(segment, error) from error


@lru_cache(maxsize=4)
def _opened(path: str, _mtime_ns: int, _size: int) -> ZipFile:
    from zipfile import ZipFile

    return ZipFile(io.BytesIO(fs.read_bytes(path, SEGMENT_LIMIT_BYTES)))


def _damaged(segment: str, error: Exception) -> CorruptState:
    hint = "restore it from a backup, or move it away to give up the record of these ticks"
    return CorruptState(f"the sealed journals are damaged: {error}", where=segment, hint=hint)
