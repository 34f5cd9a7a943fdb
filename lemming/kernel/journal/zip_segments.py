"""Segments of version 0.1: zip files with each journal packed under its own name. Read only."""

from __future__ import annotations

import os
import struct
from typing import IO
from zipfile import ZipFile

from lemming.kernel.base import paths
from lemming.kernel.journal.segments import JOURNAL_LIMIT_BYTES, InvalidSegment

_MAX_JOURNALS = 100  # of one segment
_DIRECTORY_LIMIT_BYTES = 64 << 10  # a segment's list of the journals in it takes a tenth of that
_DIRECTORY_END = struct.Struct("<4s4H2LH")  # end of a zip file without a comment
_COMPRESSION_TYPES = (0, 8)  # as it is, or deflated
_LOCATOR_BYTES = 20  # of a longer end than this, which no segment needs


class ZipSegment:
    """A segment of version 0.1 in an open file.

    Raises `InvalidSegment` or `BadZipFile` for an invalid file.
    """

    def __init__(self, file: IO[bytes]) -> None:
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
