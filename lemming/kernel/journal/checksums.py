"""The lines of a journal: one JSON object each, closed by a checksum that is chained to the line before."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import IO

from lemming.kernel.base.errors import CorruptState
from lemming.kernel.base.jsontext import RECORD_DEPTH, JsonProblem, parse
from lemming.kernel.files.descriptors import LONGEST_LINE_BYTES
from lemming.kernel.files.documents import why_unreadable
from lemming.kernel.files.fields import Json
from lemming.kernel.files.refusals import require_about_one_file

BLOCK_BYTES = 1 << 20
_CHECK_BYTES = 8  # against damage; whoever forges a journal can make as many as he likes
_TAIL = len(',"check":""}\n') + 2 * _CHECK_BYTES


def lines(stream: IO[bytes], file: str) -> Iterator[bytes]:
    """Yield lines with their ends; raise `CorruptState` for one that nobody wrote, before it is all read."""
    number = 1
    while line := stream.readline(BLOCK_BYTES):
        if len(line) == BLOCK_BYTES and not line.endswith(b"\n"):
            # Only what begins as a record is read on: a file that is one endless line would take all memory
            # there is.
            if line.startswith(b'{"type":"'):
                line += stream.readline(LONGEST_LINE_BYTES)
            if not line.endswith(b"\n") and stream.read(1):
                raise damaged(file, number, "a line that is longer than a record")
        yield line
        number += 1


def close_line(body: bytes, previous: bytes) -> tuple[bytes, bytes]:
    """Return the line of a JSON object that is not closed yet, and its checksum.

    `previous` is the checksum of the line before.
    """
    check = _checksum(body, previous)
    return b"".join((body, b',"check":"', check, b'"}\n')), check


def is_intact(line: bytes, previous: bytes) -> bool:
    """Return whether a line, with its end, is what was written after the line with that checksum."""
    return line.endswith(b',"check":"%b"}\n' % _checksum(line[:-_TAIL], previous))


def holds_together(lines: list[bytes]) -> bool:
    """Return whether each of a journal's lines, without their ends, follows from the one before.

    A torn last one is passed over. What they say is not looked at, which makes this quick.
    """
    check = b""
    for line in lines[: -1 if lines[-1] else -2]:
        if not is_intact(line + b"\n", check):
            return False
        check = check_in(line + b"\n")
    return True


def check_in(line: bytes) -> bytes:
    """Return the checksum that a line ends in."""
    return line[-3 - 2 * _CHECK_BYTES : -3]


def json_in(line: bytes) -> Json | None:
    """Return the JSON of an intact line; None when it is no object."""
    try:
        plain = parse(line[:-_TAIL] + b"}", limit_bytes=LONGEST_LINE_BYTES, max_depth=RECORD_DEPTH)
    except JsonProblem:
        return None
    return plain if isinstance(plain, dict) else None


def _checksum(body: bytes, previous: bytes) -> bytes:
    # The check of the line before is the key: so a line that was moved, left out or put in shows.
    return blake2b(body, digest_size=_CHECK_BYTES, key=previous).hexdigest().encode()


def unreadable(file: str, error: OSError) -> CorruptState:
    """Return the error for a journal that cannot be read; raise `DiskError` where it is not its fault."""
    require_about_one_file(file, error)
    return CorruptState(
        why_unreadable(error),
        where=file,
        hint="journals are regular files in a real folder; move away what stands there",
    )


def not_believed(file: str, number: int, why: str) -> CorruptState:
    """Return the error for an intact line that is no record of this engine."""
    return CorruptState(
        f"no record that this engine writes: {why}",
        where=f"{file}:{number}",
        hint="if a later version wrote it, use that one; else restore the file from a backup, or move it "
        "away to give up that tick's record",
    )


def damaged(file: str, number: int, why: str) -> CorruptState:
    """Return the error for a line that nobody wrote as it is."""
    return CorruptState(
        f"the journal is damaged: {why}",
        where=f"{file}:{number}",
        hint="restore the file from a backup, or move it away to give up that tick's record",
    )
