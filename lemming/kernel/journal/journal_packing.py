"""Journals as files: the unpacked ones, and those in segments below `logs/ticks/sealed/`, a hundred ticks each.

A packed journal stays readable, by every command and with `xz -dc`, until `kept_journals` has it removed.
`libraries/journal_sealing.py` packs them.
"""

from __future__ import annotations

import contextlib
import re
import weakref
from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import open_regular
from lemming.kernel.files.folder_listings import Listing, refresh_listing
from lemming.kernel.files.stat_cache import lstat
from lemming.kernel.journal.segments import InvalidSegment, Segment
from lemming.kernel.org.organisation import Organisation, OrgPath

if TYPE_CHECKING:
    from lemming.kernel.journal.zip_segments import ZipSegment

SEALED_FOLDER = f"{paths.JOURNALS}/sealed"
TICKS_PER_SEGMENT = 100
_KINDS = ("jsonl.xz", "zip")  # as version 0.1 wrote them
_SEGMENT = re.compile(r"([0-9]{8,12})-([0-9]{8,12})\.(?:jsonl\.xz|zip)\Z")


def plain_ticks(base: OrgPath) -> list[int]:
    """Return the ticks whose journal is an unpacked file, ascending; the list must not be modified."""
    index = Organisation.from_path(base).get_cache(_JournalIndex)
    listing = refresh_listing(f"{base}/{paths.JOURNALS}", index.listing)
    if listing is not index.listing:
        matches = map(paths.JOURNAL_FILE.match, listing.names)
        index.listing, index.ticks = listing, sorted(int(match[1]) for match in matches if match)
    return index.ticks


@contextlib.contextmanager
def track_new_journal(base: OrgPath, tick: int) -> Iterator[None]:
    """Update the journal index after the block creates the journal of a tick, without a new listing."""
    folder, index = f"{base}/{paths.JOURNALS}", Organisation.from_path(base).get_cache(_JournalIndex)
    if index.listing is None or not index.listing.is_settled or (index.ticks and tick <= index.ticks[-1]):
        yield
        return
    status_before = lstat(folder)
    yield
    if listing := index.listing.after_change((status_before, lstat(folder))):
        index.listing, index.ticks = listing, [*index.ticks, tick]


class _JournalIndex:
    """Index of an organisation's journals as last listed, and the open segments."""

    def __init__(self, org: Organisation) -> None:
        self.listing: Listing | None = None
        self.ticks: list[int] = []
        # Few: each open segment takes a descriptor and a block in memory.
        self.open_file = lru_cache(maxsize=4)(partial(_open_segment_file, org.base))


class SealedSegment(NamedTuple):
    """Name of a segment, with the first and the last tick it can hold."""

    name: str
    first: int
    last: int


def segments(base: OrgPath) -> list[SealedSegment]:
    """Return the existing segments."""
    matches = map(_SEGMENT.match, fs.list_names(f"{base}/{SEALED_FOLDER}"))
    return [SealedSegment(match[0], int(match[1]), int(match[2])) for match in matches if match]


def sealed_ticks(base: OrgPath, *, newest: int | None = None, before_tick: int | None = None) -> list[int]:
    """Return the ticks whose journal is in a segment, ascending. Raises `CorruptState` for a damaged segment.

    With `newest`, only this number of ticks (before `before_tick`) is needed, and segments not needed for
    them are not opened.
    """
    ticks: set[int] = set()
    end = float("inf") if before_tick is None else before_tick
    for segment in sorted(segments(base), key=lambda segment: -segment.first):
        if newest is not None and len(ticks) >= newest:
            break
        if segment.first < end:
            with _damage_context(f"{SEALED_FOLDER}/{segment.name}"):
                ticks.update(tick for tick in _open(base, f"{SEALED_FOLDER}/{segment.name}").ticks() if tick < end)
    return sorted(ticks)


@contextlib.contextmanager
def open_sealed(base: OrgPath, tick: int) -> Iterator[IO[bytes] | None]:
    """Open a packed journal for reading; yield None if no segment holds the tick.

    Raises `CorruptState` for a damaged segment, for a segment that unpacks to more than a journal's limit,
    and for read errors in the block.
    """
    for kind in _KINDS:
        segment = segment_path(tick, kind)
        with _damage_context(segment):
            try:
                open_segment = _open(base, segment)  # open as long as it is referenced
                file = open_segment.open(tick)
            except FileNotFoundError:
                continue
            if file is not None:
                with file:
                    yield file
                return
    yield None


@contextlib.contextmanager
def _damage_context(segment: str) -> Iterator[None]:
    """Raise `CorruptState` naming the segment for read errors in the block."""
    try:
        yield
    except FileNotFoundError:
        raise
    except NotADirectoryError as error:
        raise _damage_error(SEALED_FOLDER, error) from error
    except _damage_exceptions() as error:
        raise _damage_error(segment, error) from error


def _damage_exceptions() -> tuple[type[Exception], ...]:
    import zlib  # needed only after an exception
    from zipfile import BadZipFile

    # `RuntimeError` is zipfile's for an entry with a password, `EOFError` for one that is cut short.
    return InvalidSegment, BadZipFile, zlib.error, RuntimeError, EOFError, OSError


def _damage_error(segment: str, error: Exception) -> CorruptState:
    hint = "restore the file from a backup, or move it away to give up the record of these ticks"
    return CorruptState(f"the packed journals are damaged: {error}", where=segment, hint=hint)


def load_sealed_journal(base: OrgPath, tick: int) -> bytes | None:
    """Return the bytes of a packed journal, or None if no segment holds the tick."""
    with open_sealed(base, tick) as file:
        return file.read() if file else None


def segment_path(tick: int, kind: str = _KINDS[0]) -> str:
    """Return the path of the segment that holds a tick."""
    first = tick - tick % TICKS_PER_SEGMENT
    return f"{SEALED_FOLDER}/{first:08d}-{first + TICKS_PER_SEGMENT - 1:08d}.{kind}"


def _open(base: OrgPath, segment: str) -> Segment | ZipSegment:
    """Open a segment; the last few used stay open. Raises `FileNotFoundError` if the segment is missing."""
    status = lstat(f"{base}/{segment}")
    # Time and size are part of the key, so that a segment that was packed anew is opened anew.
    return Organisation.from_path(base).get_cache(_JournalIndex).open_file(segment, status.st_mtime_ns, status.st_size)


def _open_segment_file(base: Path, segment: str, _mtime_ns: int, _size: int) -> Segment | ZipSegment:
    from lemming.kernel.journal.zip_segments import ZipSegment

    file = open_regular(f"{base}/{segment}")
    try:
        open_segment = ZipSegment(file) if segment.endswith(".zip") else Segment(file)
    except BaseException:
        file.close()
        raise
    # The cache may drop it during a read: the file is closed with the last reference.
    weakref.finalize(open_segment, file.close)
    return open_segment
