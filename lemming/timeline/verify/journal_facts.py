"""What all journals together tell: who wrote which file last, how turns ended, what is wrong with them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, CorruptState, Problem
from lemming.kernel.base.integers import LAST_TICK, read_int
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.base.turn_numbers import split_key
from lemming.kernel.files.fields import Json
from lemming.kernel.journal.checksums import holds_together
from lemming.kernel.journal.file import journal_ticks, newest_journals, raw_journal, reading_of
from lemming.kernel.journal.records import (
    EntriesExpired,
    Record,
    TickCommitted,
    TickStarted,
    TurnCommitted,
    TurnStarted,
)
from lemming.kernel.journal.sealing import load_last_removed_tick
from lemming.kernel.journal.sequence import NoRecord, record_of
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.counter import newest_in_ledgers
from lemming.timeline.record import RecordedTick, recorded_in
from lemming.timeline.verify.root import Steps

Kind = Literal["damage", "missing", "unaccounted", "edited", "interrupted"]


@dataclass(frozen=True, kw_only=True)
class Mismatch(Problem):
    """Something that is not as the journals tell. `tick` is the one whose work it concerns.

    damage: it cannot be read. missing: it was written and is gone. unaccounted: nobody wrote it. edited: it
    can be read and says something else. interrupted: a tick that has not ended.
    """

    tick: int
    kind: Kind
    code: str = CorruptState.code

    @property
    def is_error(self) -> bool:
        """Whether it is more than a note."""
        return self.severity == "error"

    def as_json(self) -> dict[str, Any]:
        """Return the finding as JSON values."""
        return {key: getattr(self, key) for key in ("tick", "file", "kind", "message", "is_error")}


def mismatch(tick: int, file: str, kind: Kind, message: str, *, is_error: bool = True) -> Mismatch:
    """Return what is not as the journals tell."""
    return Mismatch(message, file, severity="error" if is_error else "note", tick=tick, kind=kind)


@dataclass(frozen=True)
class WrittenFile:
    """The last time a turn wrote a file."""

    tick: int
    agent: str
    sha256: str


@dataclass
class JournalFacts:
    """What the journals tell.

    `files`: the last write of each file that should be there. `turns`: for each agent and tick, what its
    ledger must say. `people`: agents that never had a turn because a person speaks for them. `under_way`:
    agents whose turn in the last tick has begun and not ended. `damaged`: ticks whose journal cannot be read.
    `gone`: ticks that had a journal. `skimmed`: how many of `ticks`, the oldest, were not taken apart.
    """

    ticks: list[int]
    files: dict[str, WrittenFile] = field(default_factory=dict)
    turns: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)
    further_turns: dict[int, int] = field(default_factory=dict)
    people: set[str] = field(default_factory=set)
    expired: set[str] = field(default_factory=set)
    under_way: set[str] = field(default_factory=set)
    damaged: list[int] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    findings: list[Mismatch] = field(default_factory=list)
    last_may_be_open: bool = False
    skimmed: int = 0

    def may_be_under_way(self, file: str) -> bool:
        """Return whether a turn that has not ended may be writing this file."""
        parts = file.split("/")
        # a file outside of its own folder may be written by any turn under way
        return bool(self.under_way) and (parts[0] != "agents" or parts[1] in self.under_way)


def read_journal_facts(
    base: OrgPath, *, newest: int | None = None, only: int | None = None, steps: Steps = lambda *_: None
) -> JournalFacts:
    """Return what the journals tell. One that cannot be read is a finding, and is passed over.

    With `newest`, so many journals are taken apart; of those before, only the lines that name files. With
    `only`, no more than so many are read at all. Raises `CorruptState` when they cannot even be listed.
    """
    told = JournalFacts(journal_ticks(base) if only is None else newest_journals(base, only))
    told.skimmed = 0 if newest is None else max(0, len(told.ticks) - newest)
    keeps_all = only is None and _keeps_all(base)
    apart_from = told.ticks[told.skimmed] if told.skimmed < len(told.ticks) else LAST_TICK
    for number, (before, tick) in enumerate(zip([None, *told.ticks], told.ticks, strict=False)):
        steps("journals", number, len(told.ticks))
        try:
            # taking a journal apart takes most of the time, and the oldest are nearly all of them
            recorded = skimmed(tick, raw_journal(base, tick)) if tick < apart_from else None
            if recorded is None:
                reading = reading_of(base, tick)
                recorded = recorded_in(tick, reading)
                is_last = tick == told.ticks[-1]
                told.findings += _journal_findings(recorded, reading.surplus_bytes, is_last=is_last)
            if before is not None or keeps_all:
                _note_gone(told, recorded, load_last_removed_tick(base) if before is None else before)
        except CorruptState as error:
            told.damaged.append(tick)
            told.findings.append(
                mismatch(
                    tick, error.where or paths.journal_file(tick), "damage", f"{error.message}; {error.hint}"
                )
            )
            continue
        _take_note(told, recorded)
    _note_gone_at_the_end(base, told)
    return told


def _keeps_all(base: OrgPath) -> bool:
    """Return True if no journal is ever to be removed. Where the settings cannot be read, nobody knows."""
    try:
        return load_config(base).org.kept_journals is None
    except ConfigError:
        return False


def _note_gone(told: JournalFacts, recorded: RecordedTick, before: int) -> None:
    """Note what tells that journals are gone; `before` is the tick of the journal before.

    Before the oldest it is the one through which journals were removed on purpose; where `kept_journals` has
    them removed, versions before noted none, and nobody asks.
    """
    named = recorded.begin.after if recorded.records else None
    if named is not None and named > before:
        told.gone.append(named)
        message = f"is gone: tick {recorded.tick} names it as the one before"
        if recorded.tick == told.ticks[0]:
            message += ", and all journals are kept; kept_journals says so if the oldest are to go"
        told.findings.append(mismatch(named, paths.journal_file(named), "missing", message))


def _note_gone_at_the_end(base: OrgPath, told: JournalFacts) -> None:
    """Note what no later journal names, but a ledger."""
    newest = newest_in_ledgers(base)
    if told.ticks and newest > told.ticks[-1]:
        told.gone.append(newest)
        message = f"is gone: a turn of tick {newest} is in a ledger"
        told.findings.append(mismatch(newest, paths.journal_file(newest), "missing", message))


def _journal_findings(recorded: RecordedTick, surplus: int, *, is_last: bool) -> Iterator[Mismatch]:
    tick, file = recorded.tick, paths.journal_file(recorded.tick)
    torn = f"; {surplus} bytes at its end are no whole record" if surplus else ""
    if recorded.end and surplus:
        yield mismatch(tick, file, "damage", f"{surplus} bytes follow the end of the tick")
    elif not recorded.end and not is_last:
        yield mismatch(tick, file, "damage", f"the tick has no end, though later ticks were run{torn}")
    elif not recorded.end:
        message = f"the tick has not ended{torn}; the next run continues it"
        yield mismatch(tick, file, "interrupted", message, is_error=False)


def _take_note(told: JournalFacts, recorded: RecordedTick) -> None:
    # a journal without a whole line: the engine died before it had begun anything
    if not recorded.records:
        told.last_may_be_open = True
        return
    told.under_way = {split_key(key)[0] for key in recorded.started.keys() - recorded.ended.keys()}
    told.last_may_be_open = not (recorded.end and recorded.end.advanced)
    plan = recorded.plan
    told.people |= recorded.people
    told.people -= set(plan.order)
    for record in recorded.records:
        if isinstance(record, TurnCommitted):
            _note_turn(told, recorded, record)
        elif isinstance(record, EntriesExpired):
            told.expired.update(record.files)
            for file in record.files:
                told.files.pop(file, None)


def _note_turn(told: JournalFacts, recorded: RecordedTick, ended: TurnCommitted) -> None:
    tick, agent = recorded.tick, ended.about
    for file in ended.report.written_ahead:  # a tool that reaches outside may have changed them since
        told.files.pop(file, None)
    for file in ended.report.removed:  # moved away or removed by the turn itself
        told.files.pop(file, None)
    for written in ended.report.files:
        told.files[written["path"]] = WrittenFile(tick, agent, written["sha256"])
    started = recorded.started.get(ended.turn_key)
    told.further_turns[tick] = told.further_turns.get(tick, 0) + bool(ended.turn)
    if ended.state or started:
        lines = told.turns.setdefault(agent, {})
        lines[tick] = _ledger_line(started, ended, lines.get(tick) if ended.turn else None)


def _ledger_line(
    started: TurnStarted | None, ended: TurnCommitted, earlier: dict[str, Any] | None
) -> dict[str, Any]:
    """Return the last line of an agent's ledger after a turn: a failed turn's state is in its record.

    `earlier`: what it says after the turn before in the same tick; both may have started from the same state.
    """
    if ended.state:
        return {key: ended.state[key] for key in ("status", "credits", "input_tokens", "output_tokens")}
    assert started, "a turn that did not fail has begun"
    before, report = earlier or started.state, ended.report
    return {
        "status": report.status,
        "credits": round(before["credits"] + report.credits, 6),
        "input_tokens": before["input_tokens"] + report.input_tokens,
        "output_tokens": before["output_tokens"] + report.output_tokens,
    }


# --- journals that are not taken apart -----------------------------------------------------------
# Most of a journal is prompts, answers and the names of those who are not due, and none of it is compared
# with a file. The chain of checksums is followed through all lines; those are read that name files.


_LINE_LIMIT_BYTES = 8 << 20
_BEGINS, _TURN = b'{"type":"tick_started"', b'{"type":"turn_started"'
_COMMITTED = b'{"type":"turn_committed"'
_READ = tuple(b'{"type":"%b"' % kind for kind in (b"turn_skipped", b"entries_expired", b"tick_committed"))
_FILE = re.compile(rb'\{"path":"([^"\\\x00-\x1f\x7f]{1,4096})","sha256":"([0-9a-f]{64})"\}')
_AROUND_A_PATH = len('{"path":"","sha256":""},') + 64
_AGENT = re.compile(rb'\{"type":"turn_started","epoch":[0-9]+,"agent":"([a-z0-9_-]+)"')
# No text holds it: there each quotation mark is escaped.
_STATE = re.compile(rb'(?:,"turn":([1-9][0-9]?))?,"state":(?=\{)')
_DECODER = json.JSONDecoder()


def skimmed(tick: int, raw: bytes) -> RecordedTick | None:
    """Return the records of a journal that `verify` compares with files; of starts only what it needs.

    None for one that is to be taken apart: it is torn or damaged, or not written as the engine writes it.
    """
    lines = raw.split(b"\n")
    if lines[-1] or not lines[0].startswith(_BEGINS) or not holds_together([*lines, b""]):
        return None
    try:
        records = [record for line in lines if (record := _record_in(line))]
        return RecordedTick(tick, records) if _is_in_order(tick, records) else None
    except (JsonProblem, NoRecord, ValueError):
        return None


def _is_in_order(tick: int, records: list[Record]) -> bool:
    begin, *_, end = records
    if not (isinstance(begin, TickStarted) and isinstance(end, TickCommitted) and begin.tick == tick):
        return False
    within = records[1:-1]
    return not any(isinstance(record, (TickStarted, TickCommitted)) for record in within) and all(
        record.about in begin.order for record in within if record.about
    )


def _record_in(line: bytes) -> Record | None:
    if line.startswith(_TURN):
        return _start_of_a_turn(line)
    if line.startswith(_COMMITTED):
        return _end_of_a_turn(line)
    if line.startswith(_BEGINS):
        return record_of(_parsed(_without(b'"not_due":[', line)[0]))
    return record_of(_parsed(line)) if line.startswith(_READ) else None


def _parsed(line: bytes) -> Json:
    plain: Json = parse(line, limit_bytes=_LINE_LIMIT_BYTES)
    return plain


def _without(key: bytes, line: bytes) -> tuple[bytes, bytes]:
    """Return a line with one of its lists empty, which holds no other list, and what was in the list."""
    before, found, after = line.partition(key)
    end = after.find(b"]")
    return (before + found + after[end:], after[:end]) if found else (line, b"")


def _end_of_a_turn(line: bytes) -> Record:
    """Return how a turn ended, without its entries: they are among the files, most of what the line holds."""
    rest, listed = _without(b'"files":[', _without(b'"entries":[', line)[0])
    plain, files = _parsed(rest), _FILE.findall(listed)
    record_of(plain)  # raises for what is none
    found_bytes = sum(len(path) + _AROUND_A_PATH for path, _ in files)
    if (listed and found_bytes - 1 != len(listed)) or b".." in listed:
        raise ValueError("it is not written as the engine writes it")
    written = [{"path": path.decode(), "sha256": digest.decode()} for path, digest in files]
    return TurnCommitted.from_json({**plain, "files": written})


def _start_of_a_turn(line: bytes) -> Record:
    agent, state = _AGENT.match(line), _STATE.search(line)
    if not agent or not state:
        raise ValueError("it is not written as the engine writes it")
    before, _ = _DECODER.raw_decode(line[state.end() :].decode())
    turn = read_int(state[1] or b"0") or 0
    return TurnStarted.from_json({"agent": agent[1].decode(), "state": before, "turn": turn})
