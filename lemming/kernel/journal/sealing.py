"""Old journals, packed: a segment below `logs/ticks/sealed/` holds the journals of a hundred ticks.

A packed journal stays readable, by every command and with `xz -dc`, until `kept_journals` has it go. Packing
is safe to repeat: the segment is published whole before the journals it holds are removed.
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
from lemming.kernel.base.jsontext import JsonProblem, parse, pretty
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import open_regular
from lemming.kernel.files.stamps import Listing, is_there, list_again, status_of
from lemming.kernel.journal.segments import JOURNAL_LIMIT_BYTES, NoSegment, Segment, pack
from lemming.kernel.org.organisation import Organisation, OrgPath

if TYPE_CHECKING:
    from lemming.kernel.journal.zip_segments import ZipSegment

SEALED = f"{paths.JOURNALS}/sealed"
REMOVED_FILE = f"{SEALED}/removed.json"
"""Through which tick journals were removed on purpose."""
TICKS_PER_SEGMENT = 100
SEGMENT_LIMIT_BYTES = 512 << 20  # of journals, packed or not: a hundred that are larger stay as they are
_KINDS = ("jsonl.xz", "zip")  # as version 0.1 wrote them
_SEGMENT = re.compile(r"([0-9]{8,12})-([0-9]{8,12})\.(?:jsonl\.xz|zip)\Z")


def seal_old_journals(base: OrgPath, tick: int, kept: int) -> list[str]:
    """Pack the journals of every full hundred of ticks older than `kept` ticks; return the new segments.

    They stay as they are where Python was built without `lzma`, an optional part of it.
    """
    sealed: list[str] = []
    if find_spec("_lzma") is None:
        return sealed
    for first in sorted({at - at % TICKS_PER_SEGMENT for at in plain_ticks(base) if at < tick - kept}):
        if first + TICKS_PER_SEGMENT > tick - kept:
            continue
        ticks = [at for at in plain_ticks(base) if first <= at < first + TICKS_PER_SEGMENT]
        whole = [at for at in ticks if _is_over(base, at)]
        sizes = [status_of(f"{base}/{paths.journal_file(at)}").st_size for at in whole]
        if whole and sum(sizes) <= SEGMENT_LIMIT_BYTES:
            sealed.append(_seal(base, first, whole))
    return sealed


def remove_old_segments(base: OrgPath, tick: int, kept: int) -> list[str]:
    """Remove the segments of which every tick is older than `kept` ticks; return their paths."""
    old = [f"{SEALED}/{name}" for name, _, last in segments(base) if last < tick - kept]
    for segment in old:
        remove_segment(base, segment)
    return old


def remove_segment(base: OrgPath, segment: str) -> None:
    """Remove a segment that is no longer kept, and note it: any other that is gone is lost."""
    last = next((last for name, _, last in segments(base) if name == Path(segment).name), -1)
    if last > load_last_removed_tick(base):
        note_removed(Path(base), last)
    fs.remove(Path(base), segment)


def note_removed(base: Path, through: int) -> None:
    """Write down through which tick journals were removed on purpose."""
    fs.publish(base, REMOVED_FILE, pretty({"through": through}), sync=True)


def load_last_removed_tick(base: OrgPath) -> int:
    """Return the last tick whose journals were removed on purpose; -1 if none were."""
    try:
        plain = parse(fs.read_bytes(f"{base}/{REMOVED_FILE}", 4096), any_integer=False)
    except (OSError, JsonProblem):
        return -1
    last = bounded_int(plain.get("through"), le=LAST_TICK) if isinstance(plain, dict) else None
    return -1 if last is None else last


def plain_ticks(base: OrgPath) -> list[int]:
    """Return the ticks whose journal is a file of its own, ascending; the list is not to be changed."""
    known = Organisation.at(base).own(_Known)
    listing = list_again(f"{base}/{paths.JOURNALS}", known.listing)
    if listing is not known.listing:
        found = map(paths.JOURNAL_FILE.match, listing.names)
        known.listing, known.ticks = listing, sorted(int(match[1]) for match in found if match)
    return known.ticks


@contextlib.contextmanager
def beginning(base: OrgPath, tick: int) -> Iterator[None]:
    """Take note that the block makes the journal of a tick, so that the others need not be listed again."""
    folder, known = f"{base}/{paths.JOURNALS}", Organisation.at(base).own(_Known)
    if known.listing is None or not known.listing.is_settled or (known.ticks and tick <= known.ticks[-1]):
        yield
        return
    before = status_of(folder)
    yield
    if after := known.listing.after_change((before, status_of(folder))):
        known.listing, known.ticks = after, [*known.ticks, tick]


class _Known:
    """The journals of an organisation as they were listed last, and the segments that are open."""

    def __init__(self, org: Organisation) -> None:
        self.listing: Listing | None = None
        self.ticks: list[int] = []
        # Few: each has a descriptor, and a block in memory.
        self.opened = lru_cache(maxsize=4)(partial(_opened, org.base))


class SealedSegment(NamedTuple):
    """A segment's name, and the first and the last tick it has room for."""

    name: str
    first: int
    last: int


def segments(base: OrgPath) -> list[SealedSegment]:
    """Return the segments that are there."""
    matches = map(_SEGMENT.match, fs.list_names(f"{base}/{SEALED}"))
    return [SealedSegment(match[0], int(match[1]), int(match[2])) for match in matches if match]


def sealed_ticks(base: OrgPath, *, newest: int | None = None, before: int | None = None) -> list[int]:
    """Return the ticks whose journal is in a segment, ascending. Raises `CorruptState` for a damaged one.

    With `newest`, so many (before a tick) are enough: segments that are not needed for them are not opened.
    """
    ticks: set[int] = set()
    end = float("inf") if before is None else before
    for segment in sorted(segments(base), key=lambda segment: -segment.first):
        if newest is not None and len(ticks) >= newest:
            break
        if segment.first < end:
            with _damage_in(f"{SEALED}/{segment.name}"):
                ticks.update(tick for tick in _open(base, f"{SEALED}/{segment.name}").ticks() if tick < end)
    return sorted(ticks)


@contextlib.contextmanager
def open_sealed(base: OrgPath, tick: int) -> Iterator[IO[bytes] | None]:
    """Give a packed journal to read from; None when no segment holds that tick.

    Raises `CorruptState` for a segment that is damaged, or larger unpacked than a journal is, and for what
    goes wrong as the block reads from it.
    """
    for kind in _KINDS:
        segment = _segment_of(tick, kind)
        with _damage_in(segment):
            try:
                opened = _open(base, segment)  # it stays open as long as somebody holds it
                file = opened.open(tick)
            except FileNotFoundError:
                continue
            if file is not None:
                with file:
                    yield file
                return
    yield None


@contextlib.contextmanager
def _damage_in(segment: str) -> Iterator[None]:
    """Raise `CorruptState` that names the segment for what goes wrong as the block reads from it."""
    try:
        yield
    except FileNotFoundError:
        raise
    except NotADirectoryError as error:
        raise _damaged(SEALED, error) from error
    except _what_damage_raises() as error:
        raise _damaged(segment, error) from error


def _what_damage_raises() -> tuple[type[Exception], ...]:
    import zlib  # asked for when something was raised
    from zipfile import BadZipFile

    # `RuntimeError` is zipfile's for an entry with a password, `EOFError` for one that is cut short.
    return NoSegment, BadZipFile, zlib.error, RuntimeError, EOFError, OSError


def _damaged(segment: str, error: Exception) -> CorruptState:
    hint = "restore it from a backup, or move it away to give up the record of these ticks"
    return CorruptState(f"the sealed journals are damaged: {error}", where=segment, hint=hint)


def read_sealed(base: OrgPath, tick: int) -> bytes | None:
    """Return the bytes of a packed journal; None when no segment holds that tick."""
    with open_sealed(base, tick) as file:
        return file.read() if file else None


def _is_over(base: OrgPath, tick: int) -> bool:
    """Return whether a journal says that its tick was committed; others are a person's to look at."""
    file = f"{base}/{paths.journal_file(tick)}"
    try:
        if status_of(file).st_size > JOURNAL_LIMIT_BYTES:
            return False
        lines = fs.read_tail(file, 4096, 1).splitlines()
    except OSError:
        return False
    return bool(lines) and lines[-1].startswith(b'{"type":"tick_committed"')


def _segment_of(tick: int, kind: str) -> str:
    first = tick - tick % TICKS_PER_SEGMENT
    return f"{SEALED}/{first:08d}-{first + TICKS_PER_SEGMENT - 1:08d}.{kind}"


def repack_segment(base: OrgPath, segment: str) -> None:
    """Pack a segment of version 0.1 as this version does; safe to repeat. Raises `CorruptState`."""
    for found in segments(base):
        if segment == f"{SEALED}/{found.name}":
            _seal(base, found.first, [])


def _seal(base: OrgPath, first: int, ticks: list[int]) -> str:
    segment, earlier = _segment_of(first, _KINDS[0]), _segment_of(first, _KINDS[1])
    # Flushed before the journals go: a power cut leaves both or the segment, and readers take a plain one
    # first.
    fs.publish(Path(base), segment, pack(_journals_from(base, first, ticks)), sync=True)
    if is_there(f"{base}/{earlier}"):  # all that it holds is in the new one
        fs.remove(Path(base), earlier)
    for tick in ticks:
        fs.remove(Path(base), paths.journal_file(tick))
    return segment


def _journals_from(base: OrgPath, first: int, plain: list[int]) -> Iterator[tuple[int, bytes]]:
    """Yield the journals of a hundred ticks: those that are files of their own, and those packed already."""
    for tick in range(first, first + TICKS_PER_SEGMENT):
        if tick in plain:
            yield tick, fs.read_bytes(f"{base}/{paths.journal_file(tick)}", JOURNAL_LIMIT_BYTES)
        elif raw := read_sealed(base, tick):
            yield tick, raw


def _open(base: OrgPath, segment: str) -> Segment | ZipSegment:
    """Open a segment; the few last used stay open. Raises `FileNotFoundError` when it is not there."""
    status = status_of(f"{base}/{segment}")
    # Time and size are part of the key, so that a segment that was packed anew is opened anew.
    return Organisation.at(base).own(_Known).opened(segment, status.st_mtime_ns, status.st_size)


def _opened(base: Path, segment: str, _mtime_ns: int, _size: int) -> Segment | ZipSegment:
    from lemming.kernel.journal.zip_segments import ZipSegment

    file = open_regular(f"{base}/{segment}")
    try:
        opened = ZipSegment(file) if segment.endswith(".zip") else Segment(file)
    except BaseException:
        file.close()
        raise
    # The cache may drop it while somebody still reads: the file closes with the last who holds it.
    weakref.finalize(opened, file.close)
    return opened
