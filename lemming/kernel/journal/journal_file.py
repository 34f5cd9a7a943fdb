"""The journal of a tick: every answer from outside, written the moment it arrives.

One file per tick, one JSON object a line. Each line ends in a checksum chained to the previous line, which
distinguishes a torn last line (left by a crash) from damage. Format: docs/formats.md, "Journal".
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Literal, TypeVar

from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState, DiskError
from lemming.kernel.base.jsontext import RECORD_DEPTH, JsonProblem, dump_compact, parse
from lemming.kernel.base.redaction.secrets import redact_bytes
from lemming.kernel.base.turn_numbers import turn_key
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import MAX_LINE_BYTES, open_regular
from lemming.kernel.journal.checksums import (
    close_line,
    is_intact,
    iter_lines,
    line_checksum,
    parse_line,
    unreadable_error,
)
from lemming.kernel.journal.engine_events import Observer, ignore_event
from lemming.kernel.journal.journal_parser import InvalidRecord, JournalContents, parse_record, parse_records
from lemming.kernel.journal.journal_records import Record, TickCommitted, TickStarted, TurnStarted
from lemming.kernel.journal.journal_segments import (
    JOURNAL_LIMIT_BYTES,
    load_sealed_journal,
    open_sealed,
    plain_ticks,
    sealed_ticks,
    track_new_journal,
)
from lemming.kernel.journal.prompt_store import InlineParts, PromptReader, PromptWriter
from lemming.kernel.org.organisation import OrgPath

T = TypeVar("T")
R = TypeVar("R", bound=Record)
Durability = Literal["turn", "tick", "off"]

OWN_LIMIT_BYTES = 1 << 30
"""Limit of the engine itself, which must resume a journal too large for commands that look."""

_TURN_STARTED = b'{"type":"turn_started",'


def read_journal(
    base: OrgPath, tick: int, *, limit_bytes: int = JOURNAL_LIMIT_BYTES, prompts: PromptReader | None = None
) -> list[Record]:
    """Return the records of a tick, oldest first; an empty list if the tick has no journal.

    Each record is validated against the type in `journal.journal_records` and the position. Raises
    `CorruptState` for damage anywhere except a torn last line, which is left out, and for an oversized
    journal. To read several journals, pass the same reader from `make_prompt_reader`.
    """
    return load_contents(base, tick, limit_bytes=limit_bytes, prompts=prompts).records


def load_contents(
    base: OrgPath, tick: int, *, limit_bytes: int = JOURNAL_LIMIT_BYTES, prompts: PromptReader | None = None
) -> JournalContents:
    """Return the contents of a tick's journal. Raises the same errors as `read_journal`."""
    with _open_journal(base, tick) as file:
        if file is None:
            return JournalContents([])
        return parse_records(file, tick, prompts or make_prompt_reader(base), limit_bytes=limit_bytes)


def make_prompt_reader(base: OrgPath) -> PromptReader:
    """Return a reader that resolves prompts referring to journals of earlier ticks."""
    return PromptReader(partial(_load_inline_parts, base))


def _load_inline_parts(base: OrgPath, tick: int) -> InlineParts:
    """Return the inline parts of a tick's journal, up to the first damaged line."""
    inline_parts, checksum, file_name = InlineParts(), b"", paths.journal_file(tick)
    with _open_journal(base, tick) as file:
        for line in iter_lines(file, file_name) if file else ():
            if not is_intact(line, checksum):
                break
            checksum = line_checksum(line)
            if line.startswith(_TURN_STARTED) and (values := parse_line(line)):
                inline_parts.collect(values)
    return inline_parts


def load_tick_started(base: OrgPath, tick: int) -> TickStarted | None:
    """Return the plan of a tick, the first record of its journal, or None if there is none yet."""
    with _open_journal(base, tick) as file:
        return parse_records(file, tick, make_prompt_reader(base), only_first=True).plan if file else None


def raw_journal(base: OrgPath, tick: int) -> bytes:
    """Return the unchecked bytes of a tick's journal, empty without a journal. Raises like `read_journal`."""
    with _open_journal(base, tick) as file:
        return file.read(JOURNAL_LIMIT_BYTES) if file else b""


def next_epoch(base: OrgPath, holder: bytes) -> int:
    """Return the number of this start of an engine, from the text of the last holder of the lock.

    A kill or a power cut can leave an empty text; then the newest journal has the number.
    """
    if described := re.search(rb'"epoch": ([0-9]+)', holder):
        return 1 + int(described[1])
    try:
        return 1 + max(load_contents(base, plain_ticks(base)[-1]).epochs)
    except (CorruptState, OSError, IndexError, ValueError):  # no journal, or an unreadable one: the tick reports it
        return 1


def is_committed(base: OrgPath, tick: int) -> bool:
    """Return True if a tick's journal is committed, judged by its last line alone."""
    return isinstance(last_record(base, tick), TickCommitted)


def last_record(base: OrgPath, tick: int) -> Record | None:
    """Return the record in the last whole line of a journal, or None. The checksum chain is not verified.

    A line of an unknown kind counts as no record. Raises `CorruptState` for an unreadable journal.
    """
    file = paths.journal_file(tick)
    try:
        tail = fs.read_tail(f"{base}/{file}", 4096, 1)
    except FileNotFoundError:
        tail = load_sealed_journal(base, tick) or b""
    except OSError as error:
        raise unreadable_error(file, error) from error
    end = tail.rfind(b"\n")
    line = tail[tail.rfind(b"\n", 0, max(end, 0)) + 1 : max(end, 0)]
    try:
        values = parse(line, limit_bytes=MAX_LINE_BYTES, max_depth=RECORD_DEPTH) if line else None
        return parse_record(values) if isinstance(values, dict) else None
    except (JsonProblem, InvalidRecord):
        return None


def journal_ticks(base: OrgPath, *, with_sealed: bool = True) -> list[int]:
    """Return the ticks with a journal, ascending; the newest journals are never sealed."""
    try:
        return sorted({*sealed_ticks(base), *plain_ticks(base)}) if with_sealed else plain_ticks(base)
    except OSError as error:
        raise unreadable_error(paths.JOURNALS, error) from error


@contextlib.contextmanager
def _open_journal(base: OrgPath, tick: int) -> Iterator[IO[bytes] | None]:
    """Open a tick's journal for reading, sealed or not; yield None if there is none."""
    file = paths.journal_file(tick)
    try:
        plain = open_regular(f"{base}/{file}")
    except FileNotFoundError:
        with open_sealed(base, tick) as packed:
            yield packed
        return
    except OSError as error:
        raise unreadable_error(file, error) from error
    try:
        with plain:
            yield plain
    except OSError as error:
        raise unreadable_error(file, error) from error


class Journal:
    """The open journal of a tick: the `records` of earlier attempts, and methods to append to it.

    Safe to use from many threads. After a disk error nothing more is written: a line after a torn line would
    be damage, and a failed sync has lost data which a second sync would not restore.
    """

    def __init__(
        self,
        base: OrgPath,
        tick: int,
        *,
        epoch: int,
        durability: Durability,
        prompts: PromptWriter | None = None,
        notify: Observer = ignore_event,
    ) -> None:
        self.tick, self._epoch, self._durability, self._on_event = tick, epoch, durability, notify
        self._base, relative = base, paths.journal_file(tick)
        self._writing, self._syncing = threading.Lock(), threading.Lock()
        self._failure: DiskError | None = None
        self._prompts = prompts or PromptWriter()
        with track_new_journal(base, tick):
            self._file = fs.AppendFile(Path(base), relative)
        try:
            with open(self._file.fileno(), "rb", closefd=False) as file:
                file.seek(0)
                reading = parse_records(file, tick, make_prompt_reader(base), limit_bytes=OWN_LIMIT_BYTES)
            self.records, self._checksum = reading.records, reading.check
            self._by_turn: dict[str, list[Record]] = {}
            for record in self.records:
                self._by_turn.setdefault(record.turn_key, []).append(record)
            self._written_count, self._long_lines = len(self.records), reading.long_lines
            self._latest_by_agent: dict[str, int] = {}
            self._synced_count = -1  # unknown whether the name and earlier lines are synced
            if reading.surplus_bytes:
                self._file.truncate(reading.valid_bytes)  # a line added behind a torn one would be damage
        except BaseException as error:  # or the descriptor would stay open
            self._file.close()
            if isinstance(error, OSError):
                raise unreadable_error(relative, error) from error
            raise

    def find_agent_records(self, agent: str, turn: int = 0) -> list[Record]:
        """Return the records an earlier attempt left about a turn of an agent."""
        return self._by_turn.get(turn_key(agent, turn) if turn else agent, [])

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def reserve(self, extra_bytes: int) -> None:
        """Raise an error now, before any paid call, if the disk has no room for the answers."""
        self._file.reserve(extra_bytes)

    def append(self, record: R, *, sync: bool = False) -> R:
        """Write a record, report it, and return it as written: with secrets removed from the texts.

        With `sync` and durability "turn", the record and all earlier records survive power loss.
        """
        body = self._body(record.kind, dump_compact(record.as_journal_json())[1:-1])
        if redact_bytes(body) is not body:  # the engine must use the values that a replay will read
            record = record.without_secrets()
            body = self._body(record.kind, dump_compact(record.as_journal_json())[1:-1])
        self._write(body, record.agent_name)
        if sync and self._durability == "turn":
            self.sync()
        self._on_event(record)
        return record

    def begin_turn(
        self,
        key: str,
        make_record: Callable[[], TurnStarted],
        opening: bytes,
        lines: list[str],
        remaining_fields: bytes,
    ) -> None:
        """Write the starting point of a turn, and report it. `make_record` is called only if needed.

        The record consists of the prefix shared by all turns of the agent, the lines of the prompt's last
        message, and the remaining fields. `opening` (the prefix) and `remaining_fields` (the remaining
        fields, without braces) are JSON already.
        """
        message_parts, new_lines = self._prompts.encode_message(self.tick, lines)
        prefix = self._prompts.encode_prefix(self.tick, key, opening)
        fields = b'%b,"opening":%b,"situation":%b' % (remaining_fields, prefix, dump_compact(message_parts))
        body = self._body(TurnStarted.kind, fields)
        if redact_bytes(body) is body:
            self._write(body, key.partition("#")[0])
            self._prompts.record_inline(self.tick, key, opening, self._long_lines, new_lines)
            self._long_lines += len(new_lines)
            if self._on_event is not ignore_event:
                self._on_event(make_record())
        else:  # recorded in full, with the secrets removed
            self.append(make_record())

    def _body(self, kind: str, fields: bytes) -> bytes:
        return b'{"type":"%b","epoch":%d,%b' % (kind.encode(), self._epoch, fields)

    def _write(self, body: bytes, agent_name: str) -> None:
        """Append the line of a record about an agent's turn; `agent_name` is empty for records of the tick."""
        with self._writing:
            line, self._checksum = close_line(body, self._checksum)
            self._change(self._file.append, line)
            self._written_count += 1
            if self._durability == "turn":
                self._latest_by_agent[agent_name] = self._written_count

    def sync_agent(self, agent: str) -> None:
        """Make an agent's records survive power loss if durability is "turn", before their effects are
        applied.

        Turns that call at the same time share one flush.
        """
        if self._durability == "turn":
            self._sync(self._latest_by_agent.get(agent, len(self.records)))  # or an earlier attempt's

    def sync(self) -> None:
        """Make all records survive power loss, unless durability is "off"."""
        if self._durability != "off":
            self._sync(self._written_count)

    def _sync(self, count: int) -> None:
        if self._synced_count >= count:
            return
        with self._syncing:
            if self._synced_count >= count:  # another thread's flush covered ours
                return
            covered, is_first = self._written_count, self._synced_count < 0
            self._change(self._flush, is_first)
            self._synced_count = covered

    def _flush(self, is_first: bool) -> None:
        if is_first and self._durability == "tick":  # bytes and name in one flush
            fs.sync_file_system(Path(self._base))
        else:
            self._file.sync()
            if is_first:
                self._file.sync_name()

    def _change(self, change: Callable[[T], None], argument: T) -> None:
        """Apply a change to the file, unless the disk has refused an earlier change."""
        if self._failure:
            raise self._failure
        try:
            change(argument)
        except DiskError as error:
            self._failure = error
            raise
