"""Packing of old journals into segments, a hundred ticks each, and the removal of segments.

Packing is safe to repeat: the segment is published whole before its journals are removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

from lemming.kernel.base import paths
from lemming.kernel.base.integers import LAST_TICK, bounded_int
from lemming.kernel.base.jsontext import JsonProblem, dump_compact, dump_pretty, parse
from lemming.kernel.files import fs
from lemming.kernel.files.stat_cache import lstat, path_exists
from lemming.kernel.journal.journal_segments import (
    BLOCK_BYTES,
    JOURNAL_LIMIT_BYTES,
    SEALED_FOLDER,
    TICKS_PER_SEGMENT,
    load_sealed_journal,
    plain_ticks,
    segment_path,
    segments,
)
from lemming.kernel.org.organisation import OrgPath

_FAST_PRESET = 1  # a tenth of the time of the usual 6, for a quarter more bytes

REMOVED_FILE = f"{SEALED_FOLDER}/removed.json"
"""Holds the last tick whose journals were removed on purpose."""
SEGMENT_LIMIT_BYTES = 512 << 20  # of journals, packed or not: a hundred that are larger stay as they are


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


def repack_segment(base: OrgPath, segment: str) -> None:
    """Pack a segment of version 0.1 in the current format; safe to repeat. Raises `CorruptState`."""
    for old_segment in segments(base):
        if segment == f"{SEALED_FOLDER}/{old_segment.name}":
            _seal(base, old_segment.first, [])


def _seal(base: OrgPath, first: int, ticks: list[int]) -> str:
    segment, earlier = segment_path(first), segment_path(first, "zip")
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


def pack(journals: Iterable[tuple[int, bytes]]) -> bytes:
    """Return a segment with the given journals: pairs of tick and bytes, ascending."""
    index, streams = [], []
    for block in _group_blocks(journals):
        stream = _compress(b"".join(block.values()))
        index.append({"bytes": len(stream), "journals": {f"{tick:08d}": len(raw) for tick, raw in block.items()}})
        streams.append(stream)
    return b"".join([_compress(dump_compact({"type": "segment", "blocks": index}) + b"\n"), *streams])


def _group_blocks(journals: Iterable[tuple[int, bytes]]) -> Iterator[dict[int, bytes]]:
    block: dict[int, bytes] = {}
    for tick, raw in journals:
        block[tick] = raw
        if sum(map(len, block.values())) >= BLOCK_BYTES:
            yield block
            block = {}
    if block:
        yield block


def _compress(raw: bytes) -> bytes:
    import lzma  # not for a command that has no old journal to look at

    return lzma.compress(raw, preset=_FAST_PRESET)
