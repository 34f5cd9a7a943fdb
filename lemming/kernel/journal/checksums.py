"""Lines of a journal: one JSON object each, closed by a checksum chained to the previous line."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import IO

from lemming.kernel.base.errors import CorruptState
from lemming.kernel.base.jsontext import RECORD_DEPTH, JsonProblem, parse
from lemming.kernel.files.descriptors import MAX_LINE_BYTES
from lemming.kernel.files.disk_errors import require_about_one_file, suggest_repair
from lemming.kernel.files.field_types import Json
from lemming.kernel.files.json_documents import unreadable_reason

BLOCK_BYTES = 1 << 20
_CHECK_BYTES = 8  # against damage, not forgery: anybody can compute a checksum
_TAIL = len(',"check":""}\n') + 2 * _CHECK_BYTES


def iter_lines(stream: IO[bytes], file: str) -> Iterator[bytes]:
    """Yield lines with their ends. Raise `CorruptState` for an overlong line before the whole line is read."""
    number = 1
    while line := stream.readline(BLOCK_BYTES):
        if len(line) == BLOCK_BYTES and not line.endswith(b"\n"):
            # Only a line that begins as a record is read on: one endless line would take all memory.
            if line.startswith(b'{"type":"'):
                line += stream.readline(MAX_LINE_BYTES)
            if not line.endswith(b"\n") and stream.read(1):
                raise damaged_error(file, number, "the line is longer than a record")
        yield line
        number += 1


def close_line(body: bytes, previous: bytes) -> tuple[bytes, bytes]:
    """Return the complete line for the JSON object `body` (without the closing brace), and the line's
    checksum.

    `previous` is the checksum of the previous line.
    """
    check = _checksum(body, previous)
    return b"".join((body, b',"check":"', check, b'"}\n')), check


def is_intact(line: bytes, previous: bytes) -> bool:
    """Return True if `line`, including the end, was written after the line with the checksum `previous`."""
    return line.endswith(b',"check":"%b"}\n' % _checksum(line[:-_TAIL], previous))


def line_checksum(line: bytes) -> bytes:
    """Return the checksum at the end of a line."""
    return line[-3 - 2 * _CHECK_BYTES : -3]


def parse_line(line: bytes) -> Json | None:
    """Return the JSON object of an intact line, or None if the line is not an object."""
    try:
        value = parse(line[:-_TAIL] + b"}", limit_bytes=MAX_LINE_BYTES, max_depth=RECORD_DEPTH)
    except JsonProblem:
        return None
    return value if isinstance(value, dict) else None


def _checksum(body: bytes, previous: bytes) -> bytes:
    # The previous checksum is the key: a moved, removed or inserted line breaks the chain.
    return blake2b(body, digest_size=_CHECK_BYTES, key=previous).hexdigest().encode()


def unreadable_error(file: str, error: OSError) -> CorruptState:
    """Return the error for an unreadable journal. Raise `DiskError` if the cause is not this one file."""
    require_about_one_file(file, error)
    hint = suggest_repair(error, "move it away; a journal must be a regular file in a real folder")
    return CorruptState(unreadable_reason(error), where=file, hint=hint)


def invalid_record_error(file: str, number: int, reason: str) -> CorruptState:
    """Return the error for an intact line that is not a valid record."""
    return CorruptState(
        f"expected a record of this version: {reason}",
        where=f"{file}:{number}",
        hint=(
            "use a later version if it wrote the record; else restore the file from a backup, or "
            "move it away to give up that tick's record"
        ),
    )


def damaged_error(file: str, number: int, reason: str) -> CorruptState:
    """Return the error for a damaged line."""
    return CorruptState(
        f"the journal is damaged: {reason}",
        where=f"{file}:{number}",
        hint="restore the file from a backup, or move it away to give up that tick's record",
    )
