"""Segments as version 0.1 wrote them: zip files, each journal packed alone under its own name. Read only."""

from __future__ import annotations

import os
import struct
from typing import IO
from zipfile import ZipFile

from lemming.kernel.base import paths
from lemming.kernel.journal.segments import JOURNAL_LIMIT_BYTES, NoSegment

_JOURNALS = 100  # of one segment
_DIRECTORY_LIMIT_BYTES = 64 << 10  # a segment's list of the journals in it takes a tenth of that
_DIRECTORY_END = struct.Struct("<4s4H2LH")  # what a zip file ends with, without a comment
_PACKED_BY = (0, 8)  # as it is, or deflated
_LOCATOR_BYTES = 20  # of a longer end than this, which no segment needs


class ZipSegment:
    """A segment of version 0.1 in a file that is open; raises `NoSegment`, `BadZipFile` for what is none."""

    def __init__(self, file: IO[bytes]) -> None:
        _require_short_directory(file)
        try:
            self._archive = ZipFile(file)
        except ValueError as error:
            raise NoSegment(str(error)) from error

    def ticks(self) -> list[int]:
        """Return the ticks whose journals it holds."""
        names = self._archive.namelist()
        return [int(match[1]) for name in names if (match := paths.JOURNAL_FILE.match(name))]

    def open(self, tick: int) -> IO[bytes] | None:
        """Open a journal to read from; None when the segment does not hold it."""
        try:
            packed = self._archive.getinfo(f"{tick:08d}.jsonl")
        except KeyError:
            return None
        if packed.file_size > JOURNAL_LIMIT_BYTES or packed.compress_type not in _PACKED_BY:
            raise NoSegment(f"a journal of {packed.file_size} bytes is not what the engine packed")
        return self._archive.open(packed)


def _require_short_directory(file: IO[bytes]) -> None:
    """Raise `NoSegment` for a file with a list of names that no segment has: it would all be read."""
    end = file.seek(0, os.SEEK_END)
    file.seek(max(0, end - _DIRECTORY_END.size - _LOCATOR_BYTES))
    before, found = file.read(_LOCATOR_BYTES), file.read()
    if len(found) < _DIRECTORY_END.size or not found.startswith(b"PK\5\6") or before[:4] == b"PK\6\7":
        raise NoSegment("it does not end as a zip file of this engine does")
    count, size = _DIRECTORY_END.unpack(found)[4:6]
    if count > _JOURNALS or size > _DIRECTORY_LIMIT_BYTES:
        raise NoSegment(f"it lists {count} files; a segment holds {_JOURNALS} journals")
