"""The journal of a tick: every answer that came from outside, written down the moment it arrived.

One file per tick, one JSON object a line. Each line ends in a checksum chained to the line before, so a
torn last line (what a crash leaves) is told from damage. Format: docs/formats.md, "Journal".
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import IO, Literal, TypeVar

from lemming import paths
from lemming.errors import CorruptState, DiskError
from lemming.files import fs
from lemming.files.descriptors import LONGEST_LINE_BYTES, open_regular
from lemming.files.documents import why_unreadable
from lemming.files.fields import Json
from lemming.files.jsontext import JsonProblem, compact, parse
from lemming.journal.records import Record, TickCommitted, TickStarted, TurnStarted, plan_in
from lemming.journal.sealing import (
    beginning,
    open_sealed,
    plain_ticks,
    read_sealed,
    sealed_ticks,
)
from lemming.journal.segments import JOURNAL_LIMIT_BYTES
from lemming.journal.sequence import NoRecord, Sequence, record_of
from lemming.journal.starts import why_no_start
from lemming.organisation import OrgPath
from lemming.redaction import redact_bytes, redact_json

T = TypeVar("T")
R = TypeVar("R", bound=Record)
Durability = Literal["turn", "tick", "off"]

OWN_LIMIT_BYTES = 1 << 30
"""The engine goes on with a journal that is larger than what is looked at."""

_RECORD_BYTES = 512  # what Python takes for a small one
_BLOCK_BYTES = 1 << 20
_CHECK_BYTES = 8
_TAIL = len(',"check":""}') + 2 * _CHECK_BYTES


@dataclass(frozen=True)
class Reading:
    """The records of a journal, the size of its valid part, its last checksum, and what follows: torn.

    `epochs` are those of the engines that wrote them.
    """

    records: list[Record]
    valid_bytes: int = 0
    check: bytes = b""
    surplus_bytes: int = 0
    epochs: frozenset[int] = frozenset()

    @property
    def plan(self) -> TickStarted | None:
        """The plan of the tick, which is its first record; None when it has not begun."""
        return plan_in(self.records)


def read_journal(base: OrgPath, tick: int, *, limit_bytes: int = JOURNAL_LIMIT_BYTES) -> list[Record]:
    """Return a tick's records, oldest first; empty when the tick has no journal.

    Each is what its type in `lemming.journal.records` says, and stands where it may. Raises `CorruptState`
    for damage anywhere but in a torn last line, which is left out, and for a journal that is too large to
    be one.
    """
    return reading_of(base, tick, limit_bytes=limit_bytes).records


def reading_of(base: OrgPath, tick: int, *, limit_bytes: int = JOURNAL_LIMIT_BYTES) -> Reading:
    """Return what a tick's journal says. Raises as `read_journal`."""
    with _opened(base, tick) as file:
        return read_records(file, tick, limit_bytes=limit_bytes) if file else Reading([])


def read_plan(base: OrgPath, tick: int) -> TickStarted | None:
    """Return the plan of a tick, the first record of its journal; None when there is none yet."""
    with _opened(base, tick) as file:
        return read_records(file, tick, only_first=True).plan if file else None


def raw_journal(base: OrgPath, tick: int) -> bytes:
    """Return the bytes of a tick's journal, unchecked; empty when it has none. Raises as `read_journal`."""
    with _opened(base, tick) as file:
        return file.read(JOURNAL_LIMIT_BYTES) if file else b""


def holds_together(lines: list[bytes]) -> bool:
    """Return whether each line of a journal follows from the one before, but for a torn last one.

    What they say is not looked at, which makes this quick.
    """
    check = b""
    for line in lines[: -1 if lines[-1] else -2]:
        if not _is_next(line, check):
            return False
        check = line[-2 - 2 * _CHECK_BYTES : -2]
    return True


def is_committed(base: OrgPath, tick: int) -> bool:
    """Return whether a tick's journal says that the tick is over, from its last line alone."""
    return isinstance(last_record(base, tick), TickCommitted)


def last_record(base: OrgPath, tick: int) -> Record | None:
    """Return the last whole line of a journal without checking the chain; None when there is none.

    A line that is no record of a kind that we know is none. Raises `CorruptState` for what cannot be read.
    """
    file = paths.journal_file(tick)
    try:
        tail = fs.read_tail(f"{base}/{file}", 4096, 1)
    except FileNotFoundError:
        tail = read_sealed(base, tick) or b""
    except OSError as error:
        raise _unreadable(file, error) from error
    end = tail.rfind(b"\n")
    line = tail[tail.rfind(b"\n", 0, max(end, 0)) + 1 : max(end, 0)]
    try:
        plain = parse(line, limit_bytes=LONGEST_LINE_BYTES) if line else None
        return record_of(plain) if isinstance(plain, dict) else None
    except (JsonProblem, NoRecord):
        return None


def journal_ticks(base: OrgPath, *, with_sealed: bool = True) -> list[int]:
    """Return the ticks that have a journal, ascending; the newest are never sealed."""
    try:
        return sorted({*sealed_ticks(base), *plain_ticks(base)}) if with_sealed else plain_ticks(base)
    except OSError as error:
        raise _unreadable(paths.JOURNALS, error) from error


def newest_journals(base: OrgPath, count: int) -> list[int]:
    """Return the newest ticks that have a journal, so many at most, ascending."""
    try:
        return sorted({*sealed_ticks(base, newest=count), *plain_ticks(base)})[-count:]
    except OSError as error:
        raise _unreadable(paths.JOURNALS, error) from error


def read_records(
    stream: IO[bytes], tick: int, *, limit_bytes: int = JOURNAL_LIMIT_BYTES, only_first: bool = False
) -> Reading:
    """Return what the bytes of a tick's journal say; raise `CorruptState` for damage before the last line."""
    file, records, sequence = paths.journal_file(tick), list[Record](), Sequence(tick)
    check, offset, room, epochs = b"", 0, limit_bytes, set[int]()
    for number, line in enumerate(_lines(stream, file), 1):
        room -= len(line) + _RECORD_BYTES
        if room < 0:
            raise _damaged(file, number, f"it is larger than the {limit_bytes >> 20} MiB that are read")
        plain = _open_line(line[:-1], check) if line.endswith(b"\n") else None
        if plain is None:
            if surplus := stream.read(1):
                why = (
                    "an empty line" if line == b"\n" else "its checksum does not follow from the line before"
                )
                raise _damaged(file, number, why)
            return Reading(records, offset, check, len(line) + len(surplus), frozenset(epochs))
        try:
            records.append(_believed(plain, sequence))
        except NoRecord as error:
            raise _not_believed(file, number, str(error)) from error
        check = line[-3 - 2 * _CHECK_BYTES : -3]
        epochs.add(plain["epoch"])
        offset += len(line)
        if only_first:
            break
    return Reading(records, offset, check, epochs=frozenset(epochs))


def _believed(plain: Json, sequence: Sequence) -> Record:
    """Return the record that a line holds; raise `NoRecord` for what no engine wrote there."""
    record = record_of(plain)
    sequence.take(record)
    if isinstance(record, TurnStarted) and (why := why_no_start(record)):
        raise NoRecord(why)
    return record


def _lines(stream: IO[bytes], file: str) -> Iterator[bytes]:
    """Yield lines with their ends; raise `CorruptState` for one that nobody wrote, before it is all read."""
    number = 1
    while line := stream.readline(_BLOCK_BYTES):
        if len(line) == _BLOCK_BYTES and not line.endswith(b"\n"):
            if line.startswith(b'{"type":"'):
                line += stream.readline(LONGEST_LINE_BYTES)
            if not line.endswith(b"\n") and stream.read(1):
                raise _damaged(file, number, "a line that is longer than a record")
        yield line
        number += 1


@contextlib.contextmanager
def _opened(base: OrgPath, tick: int) -> Iterator[IO[bytes] | None]:
    """Open a tick's journal to read from, packed or not; None when there is none."""
    file = paths.journal_file(tick)
    try:
        plain = open_regular(f"{base}/{file}")
    except FileNotFoundError:
        with open_sealed(base, tick) as packed:
            yield packed
        return
    except OSError as error:
        raise _unreadable(file, error) from error
    try:
        with plain:
            yield plain
    except OSError as error:
        raise _unreadable(file, error) from error


def may_have_gone_down(plan: TickStarted | None, boot_id: str) -> bool:
    """Return whether the machine may have gone down since a journal was begun with this plan."""
    return plan is None or not boot_id or plan.boot != boot_id


class Journal:
    """The open journal of one tick: the `records` an earlier attempt left in it, and the way to add to it.

    Safe to use from many threads. After a refusal of the disk nothing more is written: a line after a torn
    one would be damage, and a failed sync has lost what a second one would not bring back.
    """

    def __init__(self, base: OrgPath, tick: int, *, epoch: int, durability: Durability) -> None:
        self.tick, self._epoch, self._durability = tick, epoch, durability
        relative = paths.journal_file(tick)
        self._base = base
        self._writing, self._syncing = threading.Lock(), threading.Lock()
        self._failure: DiskError | None = None
        with beginning(base, tick):
            self._file = fs.AppendFile(Path(base), relative)
        try:
            with open(self._file.fileno(), "rb", closefd=False) as file:
                file.seek(0)
                reading = read_records(file, tick, limit_bytes=OWN_LIMIT_BYTES)
            self.records, self._check = reading.records, reading.check
            self._by_agent: dict[str, list[Record]] = {}
            for record in self.records:
                self._by_agent.setdefault(record.about, []).append(record)
            self._written = len(self.records)
            self._latest: dict[str, int] = {}
            self._synced = -1  # nothing is known of the name, nor of what an earlier attempt wrote
            if reading.surplus_bytes:
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

    def append(self, record: R, *, sync: bool = False, written: bytes = b"") -> R:
        """Write one record and return it as it was written: secrets are taken out of its texts.

        `written` is its JSON without braces, where that is there already. With `sync` and durability "turn"
        it survives power loss, and so do all before it.
        """
        text = self._text(record, written)
        if redact_bytes(text) != text:
            record = type(record).from_json(_without_secrets(record.as_json()))
            text = self._text(record)
        with self._writing:
            line, self._check = _close_line(text, self._check)
            self._change(self._file.append, line)
            self._written += 1
            self._latest[record.about] = self._written
        if sync and self._durability == "turn":
            self.sync()
        return record

    def _text(self, record: Record, written: bytes = b"") -> bytes:
        head = b'{"type":"%b","epoch":%d' % (record.kind.encode(), self._epoch)
        return b"%b,%b}" % (head, written or compact(record.as_json())[1:-1])

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
            fs.sync_file_system(Path(self._base))
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


def _without_secrets(fields: Json) -> Json:
    """Return fields of a record without secrets; their own names stay, for whoever reads the record."""
    return {key: redact_json(value) for key, value in fields.items()}


def _close_line(text: bytes, previous: bytes) -> tuple[bytes, bytes]:
    body = text[:-1]
    check = _checksum(body, previous)
    return b'%b,"check":"%b"}\n' % (body, check), check


def _open_line(line: bytes, previous: bytes) -> Json | None:
    """Return the JSON of a line, or None when the line is not what was written."""
    if not _is_next(line, previous):
        return None
    try:
        plain = parse(line[:-_TAIL] + b"}", limit_bytes=LONGEST_LINE_BYTES)
    except JsonProblem:
        return None
    return plain if isinstance(plain, dict) else None


def _is_next(line: bytes, previous: bytes) -> bool:
    """Return whether a line ends in the checksum that follows from the one of the line before."""
    return line[-_TAIL:] == b',"check":"%b"}' % _checksum(line[:-_TAIL], previous)


def _checksum(body: bytes, previous: bytes) -> bytes:
    return blake2b(body, digest_size=_CHECK_BYTES, key=previous).hexdigest().encode()


def _unreadable(file: str, error: OSError) -> CorruptState:
    return CorruptState(
        why_unreadable(error),
        where=file,
        hint="journals are regular files in a real folder; move away what stands there",
    )


def _not_believed(file: str, number: int, why: str) -> CorruptState:
    return CorruptState(
        f"no record that this engine writes: {why}",
        where=f"{file}:{number}",
        hint="if a later version wrote it, use that one; else restore the file from a backup, or move it "
        "away to give up that tick's record",
    )


def _damaged(file: str, number: int, why: str) -> CorruptState:
    return CorruptState(
        f"the journal is damaged: {why}",
        where=f"{file}:{number}",
        hint="restore the file from a backup, or move it away to give up that tick's record",
    )
