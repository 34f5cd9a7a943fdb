"""Facts from all journals together: last write of each file, outcomes of turns, and damage."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from lemming.journal_tools.recorded_tick import RecordedTick
from lemming.journal_tools.verify.state_root import ReportProgress
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, CorruptState, Problem
from lemming.kernel.base.integers import LAST_TICK, parse_int
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.base.turn_numbers import split_key
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.journal_file import journal_ticks, load_contents, raw_journal
from lemming.kernel.journal.journal_parser import InvalidRecord, parse_record
from lemming.kernel.journal.journal_records import (
    EntriesExpired,
    Record,
    TickCommitted,
    TickStarted,
    TurnCommitted,
    TurnEnded,
    TurnStarted,
)
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.tick.tick_counter import newest_ledger_tick
from lemming.libraries.concurrency.process_chunks import map_chunks
from lemming.libraries.journal_sealing import load_last_removed_tick
from lemming.read_model.journal_ticks import newest_journals
from lemming.read_model.tick_facts import is_chain_intact

Kind = Literal["damage", "missing", "unaccounted", "edited", "interrupted"]
"""damage: unreadable. missing: written and now gone. unaccounted: written in no turn. edited: readable with other
content. interrupted: an unfinished tick."""


def make_mismatch(tick: int, file: str, kind: Kind, message: str, *, is_error: bool = True) -> Problem:
    """Return a difference between the journals and the files: an error, or else a note."""
    severity = "error" if is_error else "note"
    return Problem(message, file, severity=severity, code=CorruptState.code, tick=tick, kind=kind)


class WrittenFile(NamedTuple):
    """The last write of a file, in the turn with this key."""

    tick: int
    key: str
    sha256: str

    @property
    def agent(self) -> str:
        """The agent of the turn."""
        return split_key(self.key)[0]


@dataclass
class JournalFacts:
    """The facts from the journals.

    `files`: the last write of each expected file. `turns`: the expected ledger line of each agent
    and tick. `former`: these lines of earlier agents whose names were given to new ones, and `begun`: the first tick
    of each new one. `people`: agents without turns because a person speaks for them. `under_way`: agents with an
    unfinished turn in the last tick. `damaged`: ticks with an unreadable journal. `uncommitted`: ticks without an
    end. `lost_ticks`: ticks with a missing journal. `skimmed`: number of oldest `ticks` not parsed fully.
    """

    ticks: list[int]
    files: dict[str, WrittenFile] = field(default_factory=dict)
    turns: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)
    former: list[dict[int, dict[str, Any]]] = field(default_factory=list)
    begun: dict[str, int] = field(default_factory=dict)
    later_turns: dict[int, int] = field(default_factory=dict)
    people: set[str] = field(default_factory=set)
    expired: set[str] = field(default_factory=set)
    under_way: set[str] = field(default_factory=set)
    damaged: list[int] = field(default_factory=list)
    uncommitted: list[int] = field(default_factory=list)
    lost_ticks: list[int] = field(default_factory=list)
    findings: list[Problem] = field(default_factory=list)
    last_may_be_open: bool = False
    skimmed: int = 0

    def is_possibly_in_progress(self, file: str) -> bool:
        """Return True if an unfinished turn may be writing the file."""
        parts = file.split("/")
        # any unfinished turn may write a file outside its own folder
        return bool(self.under_way) and (parts[0] != "agents" or parts[1] in self.under_way)


MIN_JOURNALS_FOR_PROCESSES = 4000
"""Number of journals from which several processes pay."""
_LEDGER_KEYS = ("status", "credits", "input_tokens", "output_tokens")


class _JournalReading(NamedTuple):
    """The records of a journal that count, and problems. `damage`: the reason for an unreadable journal."""

    tick: int
    records: Sequence[Record] = ()
    findings: Sequence[Problem] = ()
    damage: Problem | None = None


def load_journal_facts(
    base: OrgPath,
    *,
    newest: int | None = None,
    only: int | None = None,
    steps: ReportProgress = lambda *_: None,
    uses_all_cores: bool = False,
) -> JournalFacts:
    """Load the facts from the journals. An unreadable journal is a finding and is skipped.

    `newest`: number of newest journals to parse fully; in older journals only lines with file names are parsed. `only`:
    number of newest journals to read at all. Raises `CorruptState` if the journals cannot be listed.
    """
    facts = JournalFacts(journal_ticks(base) if only is None else newest_journals(base, only))
    facts.skimmed = 0 if newest is None else max(0, len(facts.ticks) - newest)
    keeps_all = False
    with contextlib.suppress(ConfigError):  # unreadable settings may remove journals
        keeps_all = only is None and load_config(base).org.kept_journals is None
    first_parsed = facts.ticks[facts.skimmed] if facts.skimmed < len(facts.ticks) else LAST_TICK
    read = partial(_read_journals, str(base), first_parsed, facts.ticks[-1] if facts.ticks else 0)
    previous: int | None = None
    is_large = uses_all_cores and len(facts.ticks) >= MIN_JOURNALS_FOR_PROCESSES
    for index, reading in enumerate(map_chunks(read, facts.ticks, in_processes=is_large)):
        steps("journals", index, len(facts.ticks))
        if reading.damage:
            facts.damaged.append(reading.tick)
            facts.findings.append(reading.damage)
        else:
            facts.findings += reading.findings
            recorded = RecordedTick(reading.tick, [*reading.records])
            if recorded.records and (previous is not None or keeps_all):
                before = load_last_removed_tick(base) if previous is None else previous
                _record_lost_journal(facts, recorded, before)
            _add_tick(facts, recorded)
        previous = reading.tick
    newest_turn = newest_ledger_tick(base)
    if facts.ticks and newest_turn > facts.ticks[-1]:  # the last journal is lost, as only a ledger shows
        facts.lost_ticks.append(newest_turn)
        message = f"does not exist: a ledger has a turn of tick {newest_turn}"
        facts.findings.append(make_mismatch(newest_turn, paths.journal_file(newest_turn), "missing", message))
    return facts


def _read_journals(base: str, first_parsed: int, last: int, ticks: Sequence[int]) -> Iterator[_JournalReading]:
    org = Organisation(Path(base))
    for tick in ticks:
        try:
            # parsing takes most of the time, and nearly all journals are old
            skimmed = skim_journal(tick, raw_journal(org, tick)) if tick < first_parsed else None
            yield _JournalReading(tick, skimmed) if skimmed else _parse_journal(org, tick, is_last=tick == last)
        except CorruptState as error:
            file, message = error.where or paths.journal_file(tick), f"{error.message}; {error.hint}"
            yield _JournalReading(tick, damage=make_mismatch(tick, file, "damage", message))


def _parse_journal(base: OrgPath, tick: int, *, is_last: bool) -> _JournalReading:
    contents = load_contents(base, tick)
    findings = [*_verify_journal_end(RecordedTick(tick, contents.records), contents.surplus_bytes, is_last=is_last)]
    records: list[Record] = []
    for record in contents.records:
        if isinstance(record, TurnStarted):  # without the prompt
            records.append(_reduce_start(record.agent, record.state, record.turn))
        elif isinstance(record, (TickStarted, TurnEnded, EntriesExpired, TickCommitted)):
            records.append(record)
    return _JournalReading(tick, records, findings)


def _reduce_start(agent: str, state: Json, turn: int) -> Record:
    return TurnStarted.from_json({"agent": agent, "state": state, "turn": turn})


def _record_lost_journal(facts: JournalFacts, recorded: RecordedTick, previous: int) -> None:
    """Record a lost journal named in the next journal; `previous` is the tick of the journal before.

    For the oldest journal, `previous` is the last tick removed on purpose. Old versions did not record this
    tick, so the check is omitted where `kept_journals` removes journals.
    """
    named = recorded.start_record.after
    if named is not None and named > previous:
        facts.lost_ticks.append(named)
        message = f"does not exist: tick {recorded.tick} names it as the journal before"
        if recorded.tick == facts.ticks[0]:
            message += ", and all journals are kept; set kept_journals to remove the oldest"
        facts.findings.append(make_mismatch(named, paths.journal_file(named), "missing", message))


def _verify_journal_end(recorded: RecordedTick, surplus: int, *, is_last: bool) -> Iterator[Problem]:
    tick, file = recorded.tick, paths.journal_file(recorded.tick)
    torn_text = f"; {surplus} bytes at its end are not a whole record" if surplus else ""
    if recorded.commit_record and surplus:
        yield make_mismatch(tick, file, "damage", f"{surplus} bytes follow the end of the tick")
    elif not recorded.commit_record and not is_last:
        yield make_mismatch(tick, file, "damage", f"the tick has no end, though later ticks were run{torn_text}")
    elif not recorded.commit_record:
        message = f"the tick has not ended{torn_text}; the next run continues it"
        yield make_mismatch(tick, file, "interrupted", message, is_error=False)


def _add_tick(facts: JournalFacts, recorded: RecordedTick) -> None:
    end, tick = recorded.commit_record, recorded.tick
    facts.last_may_be_open = not (end and end.advanced)
    # a journal without a whole line: the engine died before it started anything
    if not recorded.records:
        return
    facts.uncommitted += [] if end else [tick]
    facts.under_way = {split_key(key)[0] for key in recorded.started.keys() - recorded.ended.keys()}
    facts.people = (facts.people | recorded.people) - {*recorded.start_record.order}
    for record in recorded.records:
        if isinstance(record, EntriesExpired):
            facts.expired.update(record.files)
            for file in record.files:
                facts.files.pop(file, None)
        elif isinstance(record, TurnCommitted):
            _add_turn(facts, tick, record, recorded.started.get(record.turn_key))


def _add_turn(facts: JournalFacts, tick: int, ended: TurnCommitted, started: TurnStarted | None) -> None:
    report = ended.report
    # a tool with side effects may have changed `written_ahead` since; the turn itself moved or removed the others
    for path in (*report.written_ahead, *report.removed):
        facts.files.pop(path, None)
    for file in report.files:
        facts.files[file["path"]] = WrittenFile(tick, ended.turn_key, file["sha256"])
    facts.later_turns[tick] = facts.later_turns.get(tick, 0) + bool(ended.turn)
    lines = facts.turns.get(ended.agent_name, {})
    if started and started.state.get("tick") == -1 and lines.keys() - {tick}:  # its ledger had no line
        facts.former.append(lines)
        facts.begun[ended.agent_name], lines = tick, {}
    if ended.state:  # of a failed turn
        lines[tick] = {key: ended.state[key] for key in _LEDGER_KEYS}
    elif started:
        # both turns of an agent in a tick may have started from the same state
        before = lines[tick] if ended.turn and tick in lines else started.state
        total = {key: before[key] + getattr(report, key) for key in _LEDGER_KEYS[1:]}
        lines[tick] = {"status": report.status, **total, "credits": round(total["credits"], 6)}
    if lines:
        facts.turns[ended.agent_name] = lines


# --- journals that are not taken apart -----------------------------------------------------------
# Most of a journal is prompts and answers: nothing to compare with files. The chain of checksums is followed
# through all lines; only lines that name files are parsed.


_LINE_LIMIT_BYTES = 8 << 20
_BEGINS, _TURN = b'{"type":"tick_started"', b'{"type":"turn_started"'
_KINDS = (b"turn_committed", b"turn_skipped", b"entries_expired", b"tick_committed")
_READ = (_BEGINS, _TURN, *(b'{"type":"%b"' % kind for kind in _KINDS))
_AGENT = re.compile(rb'\{"type":"turn_started","epoch":[0-9]+,"agent":"([a-z0-9_-]+)"')
# Not in any text: quotation marks in texts are escaped.
_STATE = re.compile(rb'(?:,"turn":([1-9][0-9]?))?,"state":(?=\{)')
_DECODER = json.JSONDecoder()


def skim_journal(tick: int, raw: bytes) -> list[Record] | None:
    """Return the records of a journal that `verify` compares with files, with reduced start records.

    Returns None for a journal that needs a full parse: torn, damaged, or not in the engine's format.
    """
    lines = raw.split(b"\n")
    if lines[-1] or not lines[0].startswith(_BEGINS) or not is_chain_intact([*lines, b""]):
        return None
    try:
        begin, *inner_records, end = records = [_parse_record(line) for line in lines if line.startswith(_READ)]
    except (JsonProblem, InvalidRecord, ValueError):
        return None
    if not (isinstance(begin, TickStarted) and isinstance(end, TickCommitted) and begin.tick == tick):
        return None
    is_in_order = all(
        not isinstance(record, (TickStarted, TickCommitted)) and record.agent_name in (*begin.order, "")
        for record in inner_records
    )
    return records if is_in_order else None


def _parse_record(line: bytes) -> Record:
    if not line.startswith(_TURN):
        return parse_record(parse(line, limit_bytes=_LINE_LIMIT_BYTES))
    agent, state = _AGENT.match(line), _STATE.search(line)
    if not agent or not state:
        raise ValueError("it differs from the engine's own format")
    start_state, _ = _DECODER.raw_decode(line[state.end() :].decode())
    turn = parse_int(state[1] or b"0") or 0
    return _reduce_start(agent[1].decode(), start_state, turn)
