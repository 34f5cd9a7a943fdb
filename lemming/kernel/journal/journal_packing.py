"""Packing of old journals: a segment below `logs/ticks/sealed/` holds the journals of a hundred ticks.

A packed journal stays readable, by every command and with `xz -dc`, until `kept_journals` has it removed.
Packing is safe to repeat: the segment is published whole before its journals are removed.
"""

from __future__ import annotations

import contextlib
import re
import weakref
from collections.abc import Iterator
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState
from lemming.kernel.base.integers import LAST_TICK, bounded_int
from lemming.kernel.base.jsontext import JsonProblem, dump_pretty, parse
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import open_regular
from lemming.kernel.files.folder_listings import Listing, refresh_listing
from lemming.kernel.files.stat_cache import lstat, path_exists
from lemming.kernel.journal.segments import JOURNAL_LIMIT_BYTES, InvalidSegment, Segment, pack
from lemming.kernel.org.organisation import Organisation, OrgPath

if TYPE_CHECKING:
    from lemming.kernel.journal.zip_segments import ZipSegment

SEALED_FOLDER = f"{paths.JOURNALS}/sealed"
REMOVED_FILE = f"{SEALED_FOLDER}/removed.json"
"""Holds the last tick whose journals were removed on purpose."""
TICKS_PER_SEGMENT = 100
SEGMENT_LIMIT_BYTES = 512 << 20  # of journals, packed or not: a hundred that are larger stay as they are
_KINDS = ("jsonl.xz", "zip")  # as version 0.1 wrote them
_SEGMENT = re.compile(r"([0-9]{8,12})-([0-9]{8,12})\.(?:jsonl\.xz|zip)\Z")


def seal_old_journals(base: OrgPath, tick: int, kept_ticks: int) -> list[str]:
    """Pack the journals of every full hundred of ticks older than `kept_ticks` ticks; return the new
    segments.

    Journals stay unpacked if Python was built without `lzma`, an optional module.
    """
    sealed: list[str] = []
    if find_spec("_lzma") is None:
        return sealed
    for first in sorted(
        {old_tick - old_tick % TICKS_PER_SEGMENT for old_tick in plain_ticks(base) if old_tick < tick - kept_ticks}
    ):
        if first + TICKS_PER_SEGMENT > tick - kept_ticks:
            continue
        ticks = [old_tick for old_tick in plain_ticks(base) if first <= old_tick < first + TICKS_PER_SEGMENT]
        committed = [old_tick for old_tick in ticks if _is_committed(base, old_tick)]
        sizes = [lstat(f"{base}/{paths.journal_file(old_tick)}").st_size for old_tick in committed]
        if committed and sum(sizes) <= SEGMENT_LIMIT_BYTES:
            sealed.append(_seal(base, first, committed))
    return sealed


def remove_old_segments(base: OrgPath, tick: int, kept_ticks: int) -> list[str]:
    """Remove the segments in which every tick is older than `kept_ticks` ticks; return their paths."""
    old = [f"{SEALED_FOLDER}/{name}" for name, _, last in segments(base) if last < tick - kept_ticks]
    for segment in old:
        remove_segment(base, segment)
    return old


def remove_segment(base: OrgPath, segment: str) -> None:
    """Remove an expired segment and record the removal. Any other missing segment counts as lost."""
    last = next((last for name, _, last in segments(base) if name == Path(segment).name), -1)
    # Before the removal: a crash in between must not make the segment count as lost.
    if last > load_last_removed_tick(base):
        record_removed(Path(base), last)
    fs.remove(Path(base), segment)


def record_removed(base: Path, through: int) -> None:
    """Record the tick through which journals were removed on purpose."""
    fs.write_atomic(base, REMOVED_FILE, dump_pretty({"through": through}), sync=True)


def load_last_removed_tick(base: OrgPath) -> int:
    """Return the last tick whose journals were removed on purpose; -1 if none."""
    try:
        plain = parse(fs.read_bytes(f"{base}/{REMOVED_FILE}", 4096), any_integer=False)
    except (OSError, JsonProblem):
        return -1
    last = bounded_int(plain.get("through"), le=LAST_TICK) if isinstance(plain, dict) else None
    return -1 if last is None else last


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
        segment = _segment_path(tick, kind)
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


def _is_committed(base: OrgPath, tick: int) -> bool:
    """Return True if the journal's tick was committed. Other journals are left for a person to inspect."""
    file = f"{base}/{paths.journal_file(tick)}"
    try:
        if lstat(file).st_size > JOURNAL_LIMIT_BYTES:
            return False
        lines = fs.read_tail(file, 4096, 1).splitlines()
    except OSError:
        return False
    return bool(lines) and lines[-1].startswith(b'{"type":"tick_committed"')


def _segment_path(tick: int, kind: str) -> str:
    first = tick - tick % TICKS_PER_SEGMENT
    return f"{SEALED_FOLDER}/{first:08d}-{first + TICKS_PER_SEGMENT - 1:08d}.{kind}"


def repack_segment(base: OrgPath, segment: str) -> None:
    """Pack a segment of version 0.1 in the current format; safe to repeat. Raises `CorruptState`."""
    for old_segment in segments(base):
        if segment == f"{SEALED_FOLDER}/{old_segment.name}":
            _seal(base, old_segment.first, [])


def _seal(base: OrgPath, first: int, ticks: list[int]) -> str:
    segment, earlier = _segment_path(first, _KINDS[0]), _segment_path(first, _KINDS[1])
    # Synced before the journals go: a power cut leaves both or the segment; readers prefer plain files.
    fs.write_atomic(Path(base), segment, pack(_iter_journals(base, first, ticks)), sync=True)
    if path_exists(f"{base}/{earlier}"):  # its journals are in the new segment
        fs.remove(Path(base), earlier)
    for tick in ticks:
        fs.remove(Path(base), paths.journal_file(tick))
    return segment


def _iter_journals(base: OrgPath, first: int, unpacked_ticks: list[int]) -> Iterator[tuple[int, bytes]]:
    """Yield the journals of a hundred ticks, both unpacked and packed."""
    for tick in range(first, first + TICKS_PER_SEGMENT):
        if tick in unpacked_ticks:
            yield tick, fs.read_bytes(f"{base}/{paths.journal_file(tick)}", JOURNAL_LIMIT_BYTES)
        elif raw := load_sealed_journal(base, tick):
            yield tick, raw


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
