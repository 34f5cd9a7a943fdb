"""Parse the bytes of a journal into records, with the valid size and the torn rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO

from lemming.kernel.base import paths
from lemming.kernel.journal.checksums import (
    damaged_error,
    invalid_record_error,
    is_intact,
    iter_lines,
    line_checksum,
    parse_line,
)
from lemming.kernel.journal.journal_records import Record, TickStarted
from lemming.kernel.journal.prompt_store import InlineParts, PromptReader
from lemming.kernel.journal.record_lookup import find_plan
from lemming.kernel.journal.record_sequence import InvalidRecord, RecordSequence
from lemming.kernel.journal.segments import JOURNAL_LIMIT_BYTES

_RECORD_BYTES = 512  # memory that Python takes for a small record


@dataclass(frozen=True)
class JournalContents:
    """Records of a journal, with the valid size, the last checksum and the size of the torn rest.

    `epochs`: the epochs of the engines that wrote the records. `long_lines`: number of long lines, as
    `journal.prompt_store` counts them.
    """

    records: list[Record]
    valid_bytes: int = 0
    check: bytes = b""
    surplus_bytes: int = 0
    epochs: frozenset[int] = frozenset()
    long_lines: int = 0

    @property
    def plan(self) -> TickStarted | None:
        """The plan of the tick, which is the first record, or None if the tick has not started."""
        return find_plan(self.records)


def parse_records(
    stream: IO[bytes],
    tick: int,
    prompts: PromptReader,
    *,
    limit_bytes: int = JOURNAL_LIMIT_BYTES,
    only_first: bool = False,
) -> JournalContents:
    """Parse the bytes of a tick's journal. Raise `CorruptState` for damage before the last line."""
    file, records, sequence = paths.journal_file(tick), list[Record](), RecordSequence(tick)
    checksum, offset, remaining_bytes, epochs, inline_parts = b"", 0, limit_bytes, set[int](), InlineParts()
    for number, line in enumerate(iter_lines(stream, file), 1):
        remaining_bytes -= len(line) + _RECORD_BYTES
        if remaining_bytes < 0:
            raise damaged_error(file, number, f"the file is larger than the limit of {limit_bytes >> 20} MiB")
        values = parse_line(line) if is_intact(line, checksum) else None
        if values is None:
            if surplus := stream.read(1):  # a crash tears only the very last line
                reason = "an empty line" if line == b"\n" else "the checksum does not match the line before"
                raise damaged_error(file, number, reason)
            surplus_bytes = len(line) + len(surplus)
            return JournalContents(records, offset, checksum, surplus_bytes, frozenset(epochs), len(inline_parts.lines))
        try:
            records.append(sequence.accept(values, prompts, inline_parts))
        except InvalidRecord as error:
            raise invalid_record_error(file, number, str(error)) from error
        checksum = line_checksum(line)
        epochs.add(values["epoch"])
        offset += len(line)
        if only_first:
            break
    return JournalContents(records, offset, checksum, epochs=frozenset(epochs), long_lines=len(inline_parts.lines))
