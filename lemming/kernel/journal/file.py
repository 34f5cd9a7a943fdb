"""The journal of a tick: every answer that came from outside, written down the moment it arrived.

One file per tick, one JSON object a line. Each line ends in a checksum chained to the line before, so a
torn last line (what a crash leaves) is told from damage. Format: docs/formats.md, "Journal".
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Literal, TypeVar

from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState, DiskError
from lemming.kernel.base.jsontext import RECORD_DEPTH, JsonProblem, compact, compact_texts, parse
from lemming.kernel.base.redaction.secrets import redact_bytes
from lemming.kernel.base.turn_numbers import turn_key
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import LONGEST_LINE_BYTES, open_regular
from lemming.kernel.journal.checksums import (
    check_in,
    close_line,
    damaged,
    is_intact,
    json_in,
    lines,
    not_believed,
    unreadable,
)
from lemming.kernel.journal.events import Observer, ignore
from lemming.kernel.journal.lookup import plan_in
from lemming.kernel.journal.prompts import PromptReader, PromptWriter, SpelledOut
from lemming.kernel.journal.records import Record, TickCommitted, TickStarted, TurnStarted
from lemming.kernel.journal.sealing import (
    beginning,
    open_sealed,
    plain_ticks,
    read_sealed,
    sealed_ticks,
)
from lemming.kernel.journal.segments import JOURNAL_LIMIT_BYTES
from lemming.kernel.journal.sequence import NoRecord, Sequence, record_of
from lemming.kernel.org.organisation import OrgPath

T = TypeVar("T")
R = TypeVar("R", bound=Record)
Durability = Literal["turn", "tick", "off"]

OWN_LIMIT_BYTES = 1 << 30
"""The engine goes on with a journal that is larger than what is looked at."""

_TURN_STARTED = b'{"type":"turn_started",'
_RECORD_BYTES = 512  # what Python takes for a small one


@dataclass(frozen=True)
class JournalContents:
    """The records of a journal, the size of its valid part, its last checksum, and what follows: torn.

    `epochs` are those of the engines that wrote them, `long_lines` as `journal.prompts` counts them.
    """

    records: list[Record]
    valid_bytes: int = 0
    check: bytes = b""
    surplus_bytes: int = 0
    epochs: frozenset[int] = frozenset()
    long_lines: int = 0

    @property
    def plan(self) -> TickStarted | None:
        """The plan of the tick, which is its first record; None when it has not begun."""
        return plan_in(self.records)


def read_journal(
    base: OrgPath, tick: int, *, limit_bytes: int = JOURNAL_LIMIT_BYTES, prompts: PromptReader | None = None
) -> list[Record]:
    """Return a tick's records, oldest first; empty when the tick has no journal.

    Each is what its type in `journal.records` says, and stands where it may. Raises `CorruptState`
    for damage anywhere but in a torn last line, which is left out, and for a journal that is too large to
    be one. Who reads many hands in the same `prompts_in` the organisation.
    """
    return reading_of(base, tick, limit_bytes=limit_bytes, prompts=prompts).records


def reading_of(
    base: OrgPath, tick: int, *, limit_bytes: int = JOURNAL_LIMIT_BYTES, prompts: PromptReader | None = None
) -> JournalContents:
    """Return what a tick's journal says. Raises as `read_journal`."""
    with _opened(base, tick) as file:
        if file is None:
            return JournalContents([])
        return read_records(file, tick, prompts or prompts_in(base), limit_bytes=limit_bytes)


def prompts_in(base: OrgPath) -> PromptReader:
    """Return what puts prompts together that refer to journals of earlier ticks."""
    return PromptReader(partial(_spelled_out, base))


def _spelled_out(base: OrgPath, tick: int) -> SpelledOut:
    """Return what a tick's journal spells out, up to a line that is damaged; nothing when there is none."""
    found, check, file_name = SpelledOut(), b"", paths.journal_file(tick)
    with _opened(base, tick) as file:
        for line in lines(file, file_name) if file else ():
            if not is_intact(line, check):
                break
            check = check_in(line)
            if line.startswith(_TURN_STARTED) and (plain := json_in(line)):
                found.take(plain)
    return found


def read_plan(base: OrgPath, tick: int) -> TickStarted | None:
    """Return the plan of a tick, the first record of its journal; None when there is none yet."""
    with _opened(base, tick) as file:
        return read_records(file, tick, prompts_in(base), only_first=True).plan if file else None


def raw_journal(base: OrgPath, tick: int) -> bytes:
    """Return the bytes of a tick's journal, unchecked; empty when it has none. Raises as `read_journal`."""
    with _opened(base, tick) as file:
        return file.read(JOURNAL_LIMIT_BYTES) if file else b""


def journal_bytes(base: OrgPath, tick: int) -> int:
    """Return how large the file of a tick's journal is; 0 where it is none of its own."""
    try:
        return os.stat(f"{base}/{paths.journal_file(tick)}").st_size
    except OSError:
        return 0


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
        raise unreadable(file, error) from error
    end = tail.rfind(b"\n")
    line = tail[tail.rfind(b"\n", 0, max(end, 0)) + 1 : max(end, 0)]
    try:
        plain = parse(line, limit_bytes=LONGEST_LINE_BYTES, max_depth=RECORD_DEPTH) if line else None
        return record_of(plain) if isinstance(plain, dict) else None
    except (JsonProblem, NoRecord):
        return None


def journal_ticks(base: OrgPath, *, with_sealed: bool = True) -> list[int]:
    """Return the ticks that have a journal, ascending; the newest are never sealed."""
    try:
        return sorted({*sealed_ticks(base), *plain_ticks(base)}) if with_sealed else plain_ticks(base)
    except OSError as error:
        raise unreadable(paths.JOURNALS, error) from error


def newest_journals(base: OrgPath, count: int, *, before: int | None = None) -> list[int]:
    """Return the newest ticks that have a journal (before a tick), so many at most, ascending."""
    try:
        found = {*sealed_ticks(base, newest=count, before=before), *plain_ticks(base)}
        return sorted(tick for tick in found if before is None or tick < before)[-count:]
    except OSError as error:
        raise unreadable(paths.JOURNALS, error) from error


def begun_journals(base: OrgPath, count: int, *, before: int | None = None) -> list[int]:
    """Return the newest ticks that have begun (before a tick), so many at most, ascending: what to look at.

    The engine makes a journal before it writes the first line: a kill, or a full disk, then leaves one that
    is empty or torn in that line, which tells of nothing.
    """
    return begun(base, newest_journals(base, count + 1, before=before))[-count:]


def begun(base: OrgPath, ticks: list[int]) -> list[int]:
    """Return ticks that have a journal, ascending, without a last one that has not begun."""
    try:
        return ticks[:-1] if ticks and read_plan(base, ticks[-1]) is None else ticks
    except CorruptState:  # it is for whoever reads it to say so
        return ticks


def read_records(
    stream: IO[bytes],
    tick: int,
    prompts: PromptReader,
    *,
    limit_bytes: int = JOURNAL_LIMIT_BYTES,
    only_first: bool = False,
) -> JournalContents:
    """Return what the bytes of a tick's journal say; raise `CorruptState` for damage before the last line."""
    file, records, sequence = paths.journal_file(tick), list[Record](), Sequence(tick)
    check, offset, room, epochs, here = b"", 0, limit_bytes, set[int](), SpelledOut()
    for number, line in enumerate(lines(stream, file), 1):
        room -= len(line) + _RECORD_BYTES
        if room < 0:
            raise damaged(file, number, f"it is larger than the {limit_bytes >> 20} MiB that are read")
        plain = json_in(line) if is_intact(line, check) else None
        if plain is None:
            if surplus := stream.read(1):  # a crash tears only the very last line
                why = (
                    "an empty line" if line == b"\n" else "its checksum does not follow from the line before"
                )
                raise damaged(file, number, why)
            surplus_bytes = len(line) + len(surplus)
            return JournalContents(records, offset, check, surplus_bytes, frozenset(epochs), len(here.lines))
        try:
            records.append(sequence.take(plain, prompts, here))
        except NoRecord as error:
            raise not_believed(file, number, str(error)) from error
        check = check_in(line)
        epochs.add(plain["epoch"])
        offset += len(line)
        if only_first:
            break
    return JournalContents(records, offset, check, epochs=frozenset(epochs), long_lines=len(here.lines))


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
        raise unreadable(file, error) from error
    try:
        with plain:
            yield plain
    except OSError as error:
        raise unreadable(file, error) from error


class Journal:
    """The open journal of one tick: the `records` an earlier attempt left in it, and the way to add to it.

    Safe to use from many threads. After a refusal of the disk nothing more is written: a line after a torn
    one would be damage, and a failed sync has lost what a second one would not bring back.
    """

    def __init__(
        self,
        base: OrgPath,
        tick: int,
        *,
        epoch: int,
        durability: Durability,
        prompts: PromptWriter | None = None,
        tell: Observer = ignore,
    ) -> None:
        self.tick, self._epoch, self._durability, self._tell = tick, epoch, durability, tell
        self._base, relative = base, paths.journal_file(tick)
        self._writing, self._syncing = threading.Lock(), threading.Lock()
        self._failure: DiskError | None = None
        self._prompts = prompts or PromptWriter()
        with beginning(base, tick):
            self._file = fs.AppendFile(Path(base), relative)
        try:
            with open(self._file.fileno(), "rb", closefd=False) as file:
                file.seek(0)
                reading = read_records(file, tick, prompts_in(base), limit_bytes=OWN_LIMIT_BYTES)
            self.records, self._check = reading.records, reading.check
            self._by_turn: dict[str, list[Record]] = {}
            for record in self.records:
                self._by_turn.setdefault(record.turn_key, []).append(record)
            self._written, self._long_lines = len(self.records), reading.long_lines
            self._latest: dict[str, int] = {}
            self._synced = -1  # nothing is known of the name, nor of what an earlier attempt wrote
            if reading.surplus_bytes:
                self._file.truncate(reading.valid_bytes)  # a line added behind a torn one would be damage
        except BaseException as error:  # or the descriptor would stay open
            self._file.close()
            if isinstance(error, OSError):
                raise unreadable(relative, error) from error
            raise

    def records_of(self, agent: str, turn: int = 0) -> list[Record]:
        """Return the records that an earlier attempt left about one turn of an agent."""
        return self._by_turn.get(turn_key(agent, turn) if turn else agent, [])

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def reserve(self, extra_bytes: int) -> None:
        """Fail now, before anything is paid for, if the disk has no room for the answers."""
        self._file.reserve(extra_bytes)

    def append(self, record: R, *, sync: bool = False) -> R:
        """Write one record, tell it, and return it as it was written: secrets are taken out of its texts.

        With `sync` and durability "turn" it survives power loss, and so do all before it.
        """
        body = self._body(record.kind, compact(record.for_line())[1:-1])
        if redact_bytes(body) is not body:  # what is used must be what a replay will read
            record = record.without_secrets()
            body = self._body(record.kind, compact(record.for_line())[1:-1])
        self._write(body, record.about)
        if sync and self._durability == "turn":
            self.sync()
        self._tell(record)
        return record

    def begin_turn(
        self, key: str, whole: Callable[[], TurnStarted], opening: bytes, lines: list[str], rest: bytes
    ) -> None:
        """Write what the turn of a key starts from, and tell it. Nobody need put the `whole` record together.

        It consists of what all turns of the agent begin with, the lines of its prompt's last message, and the
        rest; the `opening` is JSON already, and so is that, without braces.
        """
        parts, new = self._prompts.situation(self.tick, lines)
        begins = self._prompts.opening(self.tick, key, opening)
        fields = b'%b,"opening":%b,"situation":%b' % (rest, begins, compact_texts(parts))
        body = self._body(TurnStarted.kind, fields)
        if redact_bytes(body) is body:
            self._write(body, key.partition("#")[0])
            self._prompts.note(self.tick, key, opening, self._long_lines, new)
            self._long_lines += len(new)
            if self._tell is not ignore:
                self._tell(whole())
        else:  # it stands there whole, without the secrets that were in it
            self.append(whole())

    def _body(self, kind: str, fields: bytes) -> bytes:
        return b'{"type":"%b","epoch":%d,%b' % (kind.encode(), self._epoch, fields)

    def _write(self, body: bytes, about: str) -> None:
        """Add the line of a record, which is about an agent's turn or, where that is empty, the tick."""
        with self._writing:
            line, self._check = close_line(body, self._check)
            self._change(self._file.append, line)
            self._written += 1
            if self._durability == "turn":
                self._latest[about] = self._written

    def settle(self, agent: str) -> None:
        """Make an agent's records survive power loss if durability is "turn", before what follows from them.

        Turns that ask at the same time share one flush.
        """
        if self._durability == "turn":
            self._sync(self._latest.get(agent, len(self.records)))  # or an earlier attempt's

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
