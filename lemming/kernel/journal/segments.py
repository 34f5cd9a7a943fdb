"""A segment: the journals of a hundred ticks in one file. Format: docs/formats.md, "Journal".

It is an .xz file of several streams: the first holds a line that says where each journal is, every other one
about a MiB of journals, one after another. So `xz -dc` gives all lines, and a look at one tick unpacks a MiB.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import IO, NamedTuple

from lemming.kernel.base.jsontext import compact, parse

JOURNAL_LIMIT_BYTES = 192 << 20
"""No journal that is larger is read: looking at an organisation must not take all memory there is."""
_BLOCK_BYTES = 1 << 20
_KEPT_BYTES = 8 << 20  # of a block that was unpacked last: whoever reads one tick most often reads the next
_INDEX_LIMIT_BYTES = 64 << 10  # that of a hundred journals takes a tenth
_MEMORY_LIMIT_BYTES = 64 << 20  # for unpacking; what is packed here takes two
_QUICK = 1  # a tenth of the time of the usual 6, for a quarter more bytes


class NoSegment(Exception):
    """The file is not a segment as the engine packs them."""


class _Block(NamedTuple):
    """One stream of journals: where it is, and where in it each journal lies once it is unpacked."""

    offset: int
    packed_bytes: int
    journals: dict[int, slice]
    size: int


def pack(journals: Iterable[tuple[int, bytes]]) -> bytes:
    """Return a segment that holds these journals, which come with their ticks, ascending."""
    index, streams = [], []
    for block in _in_blocks(journals):
        stream = _packed(b"".join(block.values()))
        index.append(
            {"bytes": len(stream), "journals": {f"{tick:08d}": len(raw) for tick, raw in block.items()}}
        )
        streams.append(stream)
    return b"".join([_packed(compact({"type": "segment", "blocks": index}) + b"\n"), *streams])


def _in_blocks(journals: Iterable[tuple[int, bytes]]) -> Iterator[dict[int, bytes]]:
    block: dict[int, bytes] = {}
    for tick, raw in journals:
        block[tick] = raw
        if sum(map(len, block.values())) >= _BLOCK_BYTES:
            yield block
            block = {}
    if block:
        yield block


def _packed(raw: bytes) -> bytes:
    import lzma  # not for a command that has no old journal to look at

    return lzma.compress(raw, preset=_QUICK)


class Segment:
    """A segment in a file that is open; raises `NoSegment` for what is none."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._blocks = _blocks_in(self._read(_INDEX_LIMIT_BYTES, 0), os.fstat(file.fileno()).st_size)
        self._latest: tuple[_Block, bytes] | None = None

    def ticks(self) -> list[int]:
        """Return the ticks whose journals it holds."""
        return [tick for block in self._blocks for tick in block.journals]

    def open(self, tick: int) -> IO[bytes] | None:
        """Open a journal to read from; None when the segment does not hold it."""
        for block in self._blocks:
            if tick in block.journals:
                return io.BytesIO(self._unpacked(block)[block.journals[tick]])
        return None

    def _unpacked(self, block: _Block) -> bytes:
        latest = self._latest
        if latest and latest[0] is block:
            return latest[1]
        raw, _ = _unpack(self._read(block.packed_bytes, block.offset), block.size)
        if len(raw) != block.size:
            raise NoSegment("a stream in it is shorter than its first line says")
        self._latest = (block, raw) if block.size <= _KEPT_BYTES else None
        return raw

    def _read(self, size: int, offset: int) -> bytes:
        return os.pread(self._file.fileno(), size, offset)


def _blocks_in(head: bytes, file_bytes: int) -> list[_Block]:
    """Return what the first line says is in the file; raise `NoSegment` where that cannot be."""
    line, offset = _unpack(head, _INDEX_LIMIT_BYTES)
    blocks = []
    try:
        for plain in parse(line)["blocks"]:
            sizes = {int(tick): int(size) for tick, size in plain["journals"].items()}
            ends = dict(zip(sizes, accumulate(sizes.values()), strict=True))
            journals = {tick: slice(end - sizes[tick], end) for tick, end in ends.items()}
            blocks.append(_Block(offset, int(plain["bytes"]), journals, sum(sizes.values())))
            offset += blocks[-1].packed_bytes
            # A negative size would let one journal reach into the bytes of another.
            if min([blocks[-1].packed_bytes, *sizes.values()]) <= 0:
                raise ValueError("nothing has so many bytes")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise NoSegment(f"its first line is not one of a segment: {error}") from error
    # A forged first line could have a small file unpack to any size.
    if (most := max((block.size for block in blocks), default=0)) > JOURNAL_LIMIT_BYTES + _BLOCK_BYTES:
        raise NoSegment(f"{most} bytes of journals in one stream are not what the engine packed")
    if offset != file_bytes:
        raise NoSegment(f"it has {file_bytes} bytes, and by its first line {offset}")
    return blocks


def _unpack(packed: bytes, limit: int) -> tuple[bytes, int]:
    """Return what the stream at the beginning holds, and where it ends; unpack no more than it may hold."""
    try:
        import lzma
    except ImportError as error:
        raise NoSegment("this Python was built without lzma, which unpacks it") from error

    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY_LIMIT_BYTES)
    try:
        raw = unpacker.decompress(packed, max_length=limit)
        if not unpacker.eof:  # what ends the stream may still be to come
            raw += unpacker.decompress(b"", max_length=1)
    except lzma.LZMAError as error:
        raise NoSegment(str(error)) from error
    if not unpacker.eof:
        raise NoSegment("a stream in it does not end where its first line says")
    return raw, len(packed) - len(unpacker.unused_data)
