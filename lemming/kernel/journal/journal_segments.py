"""Journals as files: the unpacked ones, and those in segments below `logs/ticks/sealed/`, a hundred ticks each.

A packed journal stays readable, by every command and with `xz -dc`, until `kept_journals` has it removed.
`libraries/journal_sealing.py` packs them. Format: docs/formats.md, "Journal".

A segment is an .xz file of several streams. The first stream holds a line with the position of each journal,
every other stream about a MiB of journals. Therefore `xz -dc` prints all lines, and reading one tick unpacks
a MiB. Segments of version 0.1 are zip files with each journal packed under its own name, for reading only.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import struct
import weakref
from collections.abc import Iterator
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path
from typing import IO, NamedTuple

from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState
from lemming.kernel.base.jsontext import parse
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import open_regular
from lemming.kernel.files.folder_listings import Listing, refresh_listing
from lemming.kernel.files.stat_cache import lstat
from lemming.kernel.org.organisation import Organisation, OrgPath

SEALED_FOLDER = f"{paths.JOURNALS}/sealed"
TICKS_PER_SEGMENT = 100
_KINDS = ("jsonl.xz", "zip")  # as version 0.1 wrote them
JOURNAL_LIMIT_BYTES = 192 << 20
"""Larger journals are refused: looking at an organisation must not exhaust the memory."""
BLOCK_BYTES = 1 << 20
_KEPT_BYTES = 8 << 20  # cached of the last block: readers mostly go on to the next tick
_INDEX_LIMIT_BYTES = 64 << 10  # ten times the index of a hundred journals
_MEMORY_LIMIT_BYTES = 64 << 20  # for unpacking; our own segments need two MiB
_MAX_JOURNALS = 100  # of one segment
_DIRECTORY_LIMIT_BYTES = 64 << 10  # a segment's list of the journals in it takes a tenth of that
_DIRECTORY_END = struct.Struct("<4s4H2LH")  # end of a zip file without a comment
_COMPRESSION_TYPES = (0, 8)  # as it is, or deflated
_LOCATOR_BYTES = 20  # of a longer end than this, which no segment needs
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
    file = open_regular(f"{base}/{segment}")
    try:
        open_segment = ZipSegment(file) if segment.endswith(".zip") else Segment(file)
    except BaseException:
        file.close()
        raise
    # The cache may drop it during a read: the file is closed with the last reference.
    weakref.finalize(open_segment, file.close)
    return open_segment


class InvalidSegment(Exception):
    """Raised for a file the engine did not pack as a segment."""


class _Block(NamedTuple):
    """One stream of journals: the position in the file, and the slice of each journal once unpacked."""

    offset: int
    packed_bytes: int
    journals: dict[int, slice]
    size: int


class Segment:
    """A segment in an open file. Raises `InvalidSegment` for an invalid file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._blocks = _parse_blocks(self._pread(_INDEX_LIMIT_BYTES, 0), os.fstat(file.fileno()).st_size)
        self._latest_block: tuple[_Block, bytes] | None = None

    def ticks(self) -> list[int]:
        """Return the ticks whose journals the segment holds."""
        return [tick for block in self._blocks for tick in block.journals]

    def open(self, tick: int) -> IO[bytes] | None:
        """Open a journal for reading; return None if the segment does not hold the tick."""
        for block in self._blocks:
            if tick in block.journals:
                return io.BytesIO(self._unpack_block(block)[block.journals[tick]])
        return None

    def _unpack_block(self, block: _Block) -> bytes:
        latest = self._latest_block
        if latest and latest[0] is block:
            return latest[1]
        raw, _ = _unpack(self._pread(block.packed_bytes, block.offset), block.size)
        if len(raw) != block.size:
            raise InvalidSegment("a stream in the file is shorter than the first line states")
        self._latest_block = (block, raw) if block.size <= _KEPT_BYTES else None
        return raw

    def _pread(self, size: int, offset: int) -> bytes:
        return os.pread(self._file.fileno(), size, offset)


def _parse_blocks(head: bytes, file_bytes: int) -> list[_Block]:
    """Return the blocks listed in the first line of a segment. Raise `InvalidSegment` for an impossible list."""
    line, offset = _unpack(head, _INDEX_LIMIT_BYTES)
    blocks = []
    try:
        for block_json in parse(line)["blocks"]:
            sizes = {int(tick): int(size) for tick, size in block_json["journals"].items()}
            ends = dict(zip(sizes, accumulate(sizes.values()), strict=True))
            journals = {tick: slice(end - sizes[tick], end) for tick, end in ends.items()}
            blocks.append(_Block(offset, int(block_json["bytes"]), journals, sum(sizes.values())))
            offset += blocks[-1].packed_bytes
            # A negative size would let one journal reach into the bytes of another.
            if min([blocks[-1].packed_bytes, *sizes.values()]) <= 0:
                raise ValueError("the byte count is out of range")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidSegment(f"the first line must be that of a segment: {error}") from error
    # A forged first line could have a small file unpack to any size.
    if (largest_block := max((block.size for block in blocks), default=0)) > JOURNAL_LIMIT_BYTES + BLOCK_BYTES:
        raise InvalidSegment(f"a stream holds {largest_block} bytes of journals, more than the engine packs")
    if offset != file_bytes:
        raise InvalidSegment(f"the file must have {offset} bytes by its first line, got {file_bytes}")
    return blocks


def _unpack(compressed: bytes, limit: int) -> tuple[bytes, int]:
    """Unpack at most `limit` bytes from the first stream; return them and the end of the stream."""
    try:
        import lzma
    except ImportError as error:
        raise InvalidSegment("unpacking needs lzma, and this Python was built without it") from error

    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY_LIMIT_BYTES)
    try:
        raw = unpacker.decompress(compressed, max_length=limit)
        if not unpacker.eof:  # the end of the stream may still follow
            raw += unpacker.decompress(b"", max_length=1)
    except lzma.LZMAError as error:
        raise InvalidSegment(str(error)) from error
    if not unpacker.eof:
        raise InvalidSegment("a stream in the file does not end where the first line states")
    return raw, len(compressed) - len(unpacker.unused_data)


class ZipSegment:
    """A segment of version 0.1 in an open file. Raises `InvalidSegment` or `BadZipFile` for an invalid file."""

    def __init__(self, file: IO[bytes]) -> None:
        from zipfile import ZipFile

        _require_short_directory(file)
        try:
            self._archive = ZipFile(file)
        except ValueError as error:
            raise InvalidSegment(str(error)) from error

    def ticks(self) -> list[int]:
        """Return the ticks whose journals the segment holds."""
        names = self._archive.namelist()
        return [int(match[1]) for name in names if (match := paths.JOURNAL_FILE.match(name))]

    def open(self, tick: int) -> IO[bytes] | None:
        """Open a journal for reading; return None if the segment does not hold the tick."""
        try:
            packed = self._archive.getinfo(f"{tick:08d}.jsonl")
        except KeyError:
            return None
        if packed.file_size > JOURNAL_LIMIT_BYTES or packed.compress_type not in _COMPRESSION_TYPES:
            raise InvalidSegment(f"a journal has {packed.file_size} bytes, more than the engine packs")
        return self._archive.open(packed)


def _require_short_directory(file: IO[bytes]) -> None:
    """Raise `InvalidSegment` for a directory longer than any segment's; zipfile would read all of it."""
    end = file.seek(0, os.SEEK_END)
    file.seek(max(0, end - _DIRECTORY_END.size - _LOCATOR_BYTES))
    locator, directory_end = file.read(_LOCATOR_BYTES), file.read()
    if len(directory_end) < _DIRECTORY_END.size or not directory_end.startswith(b"PK\5\6") or locator[:4] == b"PK\6\7":
        raise InvalidSegment("the file does not end like a zip file of this engine")
    count, size = _DIRECTORY_END.unpack(directory_end)[4:6]
    if count > _MAX_JOURNALS or size > _DIRECTORY_LIMIT_BYTES:
        raise InvalidSegment(f"the file lists {count} files; a segment holds at most {_MAX_JOURNALS} journals")
