"""A segment: the journals of a hundred ticks in one file. Format: docs/formats.md, "Journal".

A segment is an .xz file of several streams. The first stream holds a line with the position of each journal,
every other stream about a MiB of journals. Therefore `xz -dc` prints all lines, and reading one tick unpacks
a MiB.
"""

from __future__ import annotations

import io
import os
from itertools import accumulate
from typing import IO, NamedTuple

from lemming.kernel.base.jsontext import parse

JOURNAL_LIMIT_BYTES = 192 << 20
"""Larger journals are refused: looking at an organisation must not exhaust the memory."""
BLOCK_BYTES = 1 << 20
_KEPT_BYTES = 8 << 20  # cached of the last block: readers mostly go on to the next tick
_INDEX_LIMIT_BYTES = 64 << 10  # ten times the index of a hundred journals
_MEMORY_LIMIT_BYTES = 64 << 20  # for unpacking; our own segments need two MiB


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
    """Return the blocks listed in the first line of a segment.

    Raise `InvalidSegment` for an impossible list.
    """
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
