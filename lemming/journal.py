"""The journal of a tick: every answer that came from outside, written down the moment it arrived.

One file per tick, one JSON object a line. Each line ends in a checksum chained to the line before, so a
torn last line (what a crash leaves) is told from damage. Format: docs/formats.md, "Journal".
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, TypeVar

from lemming import fs, paths
from lemming.clock import Clock
from lemming.documents import why_unreadable
from lemming.errors import CorruptState, DiskError
from lemming.jsontext import JsonProblem, compact, parse
from lemming.redaction import redact_bytes, redact_json
from lemming.sealing import beginning, plain_ticks, read_sealed, sealed_ticks

Record = dict[str, Any]
T = TypeVar("T")
Durability = Literal["turn", "tick", "off"]

LINE_LIMIT_BYTES = 64 << 20
_CHECK_BYTES = 8
_TAIL = len(',"check":""}') + 2 * _CHECK_BYTES


@dataclass(frozen=True)
class Reading:
    """The records of a journal, the size of its valid part, and its last checksum."""

    records: list[Record]
    valid_bytes: int
    check: bytes


def read_journal(base: Path, tick: int) -> list[Record]:
    """Return a tick's records, oldest first; empty when the tick has no journal.

    Raises `CorruptState` for damage anywhere but in a torn last line, which is left out.
    """
    file = paths.journal_file(tick)
    try:
        raw = fs.read_bytes(base / file, LINE_LIMIT_BYTES * 16)
    except FileNotFoundError:
        raw = read_sealed(base, tick) or b""
    except OSError as error:
        raise _unreadable(file, error) from error
    return parse_journal(raw, file).records


def is_committed(base: Path, tick: int) -> bool:
    """Return whether a tick's journal says that the tick is over, from its last line alone."""
    record = last_record(base, tick)
    return record is not None and record["type"] == "tick_committed"


def last_record(base: Path, tick: int) -> Record | None:
    """Return the last whole line of a journal without checking the chain; None when there is none."""
    file = paths.journal_file(tick)
    try:
        tail = fs.read_tail(f"{base}/{file}", 4096, 1)
    except FileNotFoundError:
        tail = read_sealed(base, tick) or b""
    except OSError as error:
        raise _unreadable(file, error) from error
    lines = tail[: tail.rfind(b"\n") + 1].splitlines()
    try:
        record = parse(lines[-1], limit_bytes=LINE_LIMIT_BYTES) if lines else None
    except JsonProblem:
        return None
    return record if isinstance(record, dict) and "type" in record else None


def journal_ticks(base: Path, *, with_sealed: bool = True) -> list[int]:
    """Return the ticks that have a journal, ascending; the newest are never sealed."""
    try:
        return sorted({*sealed_ticks(base), *plain_ticks(base)}) if with_sealed else plain_ticks(base)
    except OSError as error:
        raise _unreadable(paths.JOURNALS, error) from error


def parse_journal(raw: bytes, file: str) -> Reading:
    """Return what the bytes of a journal say; raise `CorruptState` for damage before the last line."""
    records: list[Record] = []
    check, offset = b"", 0
    for number, line in enumerate(raw.split(b"\n"), 1):
        if not line:
            if offset < len(raw):
                raise _damaged(file, number, "an empty line")
            break
        record = _open_line(line, check)
        is_last = offset + len(line) + 1 >= len(raw)
        if record is None or offset + len(line) >= len(raw):
            if is_last:
                break
            raise _damaged(file, number, "its checksum does not follow from the line before")
        check = line[-2 - 2 * _CHECK_BYTES : -2]
        records.append(record)
        offset += len(line) + 1
    return Reading(records, offset, check)


def progress_of(records: list[Record]) -> dict[str, Any]:
    """Return how far a tick has come: the answers of models that are kept, and whose turns are left."""
    ended = {record["agent"] for record in records if record["type"] in ("turn_committed", "turn_skipped")}
    return {
        "answers_kept": sum(record["type"] == "model_replied" for record in records),
        "turns_left": [name for name in records[0]["order"] if name not in ended],
    }


def may_have_gone_down(records: list[Record], clock: Clock) -> bool:
    """Return whether the machine may have gone down since a journal was begun."""
    return not records or not clock.boot_id or records[0].get("boot", "") != clock.boot_id


class Journal:
    """The open journal of one tick: the `records` an earlier attempt left in it, and the way to add to it.

    Safe to use from many threads. After a refusal of the disk nothing more is written: a line after a torn
    one would be damage, and a failed sync has lost what a second one would not bring back.
    """

    def __init__(self, base: Path, tick: int, *, epoch: int, durability: Durability) -> None:
        self.tick, self._epoch, self._durability = tick, epoch, durability
        relative = paths.journal_file(tick)
        self._base = base
        self._writing, self._syncing = threading.Lock(), threading.Lock()
        self._failure: DiskError | None = None
        with beginning(base, tick):
            self._file = fs.AppendFile(base, relative)
        try:
            raw = self._file.read()
            reading = parse_journal(raw, relative)
            self.records, self._check = reading.records, reading.check
            self._by_agent: dict[str, list[Record]] = {}
            for record in self.records:
                if "agent" in record:
                    self._by_agent.setdefault(record["agent"], []).append(record)
            self._written = len(self.records)
            self._latest: dict[str, int] = {}
            self._synced = -1  # nothing is known of the name, nor of what an earlier attempt wrote
            if reading.valid_bytes < len(raw):
                self._file.truncate(reading.valid_bytes)
        except BaseException:
            self._file.close()
            raise

    def records_of(self, agent: str) -> list[Record]:
        """Return the records that an earlier attempt left about one agent's turn."""
        return self._by_agent.get(agent, [])

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def reserve(self, extra_bytes: int) -> None:
        """Fail now, before anything is paid for, if the disk has no room for the answers."""
        self._file.reserve(extra_bytes)

    def append(self, kind: str, *, sync: bool = False, written: bytes = b"", **fields: Any) -> Record:
        """Write one record and return it as it was written: secrets are taken out of its texts.

        `written` are more fields, in JSON already, without braces; they are not in what is returned.
        With `sync` and durability "turn" it survives power loss, and so do all before it.
        """
        record: Record = {"type": kind, "epoch": self._epoch, **fields}
        text = compact(record)
        if written:
            text = b"%b,%b}" % (text[:-1], written)
        if redact_bytes(text) != text:
            record |= _without_secrets(fields)
            text = compact(record | _without_secrets(json.loads(b"{%b}" % written)))
        with self._writing:
            line, self._check = _close_line(text, self._check)
            self._change(self._file.append, line)
            self._written += 1
            if "agent" in fields:
                self._latest[fields["agent"]] = self._written
        if sync and self._durability == "turn":
            self.sync()
        return record

    def settle(self, agent: str) -> None:
        """Make an agent's records survive power loss if durability is "turn", before what follows from them.

        Turns that ask at the same time share one flush.
        """
        if self._durability == "turn":
            self._sync(self._latest.get(agent, len(self.records)))

    def sync(self) -> None:
        """Make all records survive power loss, unless durability is "off"."""
        if self._durability != "off":
            self._sync(self._written)

    def _sync(self, wanted: int) -> None:
        if self._synced >= wanted:
            return
        with self._syncing:
            if self._synced >= wanted:  # somebody's flush has covered ours while we waited
                return
            covered, is_first = self._written, self._synced < 0
            self._change(self._flush, is_first)
            self._synced = covered

    def _flush(self, is_first: bool) -> None:
        if is_first and self._durability == "tick":  # bytes and name in one flush
            fs.sync_file_system(self._base)
        else:
            self._file.sync()
            if is_first:
                self._file.sync_name()

    def _change(self, change: Callable[[T], None], what: T) -> None:
        """Change the file; not after the disk has refused once."""
        if self._failure:
            raise self._failure
        try:
            change(what)
        except DiskError as error:
            self._failure = error
            raise


def _without_secrets(fields: dict[str, Any]) -> Record:
    """Return fields of a record without secrets; their own names stay, for whoever reads the record."""
    return {key: redact_json(value) for key, value in fields.items()}


def _close_line(text: bytes, previous: bytes) -> tuple[bytes, bytes]:
    body = text[:-1]
    check = _checksum(body, previous)
    return b'%b,"check":"%b"}\n' % (body, check), check


def _open_line(line: bytes, previous: bytes) -> Record | None:
    """Return the record of a line, or None when the line is not what was written."""
    body, tail = line[:-_TAIL], line[-_TAIL:]
    check = _checksum(body, previous)
    if tail != b',"check":"%b"}' % check:
        return None
    try:
        record = parse(body + b"}", limit_bytes=LINE_LIMIT_BYTES)
    except JsonProblem:
        return None
    return record if isinstance(record, dict) else None


def _checksum(body: bytes, previous: bytes) -> bytes:
    return blake2b(body, digest_size=_CHECK_BYTES, key=previous).hexdigest().encode()


def _unreadable(file: str, error: OSError) -> CorruptState:
    return CorruptState(
        why_unreadable(error),
        where=file,
        hint="journals are regular files in a real folder; move away what stands there",
    )


def _damaged(file: str, number: int, why: str) -> CorruptState:
    return CorruptState(
        f"the journal is damaged: {why}",
        where=f"{file}:{number}",
        hint="restore the file from a backup, or move it away to give up that tick's record",
    )
