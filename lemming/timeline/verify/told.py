"""What all journals together tell: who wrote which file last, how turns ended, what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from lemming.base import paths
from lemming.errors import CorruptState
from lemming.journal.file import journal_ticks, raw_journal, reading_of
from lemming.journal.records import EntriesExpired, TurnCommitted, TurnStarted
from lemming.org.organisation import OrgPath
from lemming.tick.counter import LAST_TICK, newest_in_ledgers
from lemming.timeline.record import RecordedTick, recorded_in
from lemming.timeline.verify.skim import skimmed

Kind = Literal["damage", "missing", "unaccounted", "edited", "interrupted"]


@dataclass(frozen=True)
class Mismatch:
    """Something that is not as the journals tell. `tick` is the one whose work it concerns.

    damage: it cannot be read. missing: it was written and is gone. unaccounted: nobody wrote it. edited: it
    can be read and says something else. interrupted: a tick that has not ended.
    """

    tick: int
    file: str
    kind: Kind
    message: str
    is_error: bool = True

    def as_json(self) -> dict[str, Any]:
        """Return the finding as JSON values."""
        return dict(vars(self))


@dataclass(frozen=True)
class Written:
    """The last time a turn wrote a file."""

    tick: int
    agent: str
    sha256: str


@dataclass
class Told:
    """What the journals tell.

    `files`: the last write of each file that should be there. `turns`: for each agent and tick, what its
    ledger must say. `people`: agents that never had a turn because a person speaks for them. `under_way`:
    agents whose turn in the last tick has begun and not ended. `damaged`: ticks whose journal cannot be read.
    `gone`: ticks that had a journal. `skimmed`: how many of `ticks`, the oldest, were not taken apart.
    """

    ticks: list[int]
    files: dict[str, Written] = field(default_factory=dict)
    turns: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)
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
        return bool(self.under_way) and (parts[0] != "agents" or parts[1] in self.under_way)


def read_told(base: OrgPath, *, newest: int | None = None) -> Told:
    """Return what the journals tell. One that cannot be read is a finding, and is passed over.

    With `newest`, so many journals are taken apart; of those before, only the lines that name files.
    Raises `CorruptState` when the journals cannot even be listed.
    """
    told = Told(journal_ticks(base))
    told.skimmed = 0 if newest is None else max(0, len(told.ticks) - newest)
    apart_from = told.ticks[told.skimmed] if told.skimmed < len(told.ticks) else LAST_TICK
    for before, tick in zip([None, *told.ticks], told.ticks, strict=False):
        try:
            recorded = skimmed(tick, raw_journal(base, tick)) if tick < apart_from else None
            if recorded is None:
                reading = reading_of(base, tick)
                recorded = recorded_in(tick, reading)
                is_last = tick == told.ticks[-1]
                told.findings += _journal_findings(recorded, reading.surplus_bytes, is_last=is_last)
            _note_gone(told, recorded, before)
        except CorruptState as error:
            told.damaged.append(tick)
            told.findings.append(
                Mismatch(
                    tick, error.where or paths.journal_file(tick), "damage", f"{error.message}; {error.hint}"
                )
            )
            continue
        _take_note(told, recorded)
    _note_gone_at_the_end(base, told)
    return told


def _note_gone(told: Told, recorded: RecordedTick, before: int | None) -> None:
    """Note what tells that journals are gone; old ones that somebody cleared away from the front are not."""
    named = recorded.begin.after if recorded.records else None
    if before is not None and named is not None and named > before:
        told.gone.append(named)
        message = f"is gone: tick {recorded.tick} names it as the one before"
        told.findings.append(Mismatch(named, paths.journal_file(named), "missing", message))


def _note_gone_at_the_end(base: OrgPath, told: Told) -> None:
    """Note what no later journal names, but a ledger."""
    newest = newest_in_ledgers(base)
    if told.ticks and newest > told.ticks[-1]:
        told.gone.append(newest)
        message = f"is gone: a turn of tick {newest} is in a ledger"
        told.findings.append(Mismatch(newest, paths.journal_file(newest), "missing", message))


def _journal_findings(recorded: RecordedTick, surplus: int, *, is_last: bool) -> Iterator[Mismatch]:
    tick, file = recorded.tick, paths.journal_file(recorded.tick)
    torn = f"; {surplus} bytes at its end are no whole record" if surplus else ""
    if recorded.end and surplus:
        yield Mismatch(tick, file, "damage", f"{surplus} bytes follow the end of the tick")
    elif not recorded.end and not is_last:
        yield Mismatch(tick, file, "damage", f"the tick has no end, though later ticks were run{torn}")
    elif not recorded.end:
        message = f"the tick has not ended{torn}; the next run continues it"
        yield Mismatch(tick, file, "interrupted", message, is_error=False)


def _take_note(told: Told, recorded: RecordedTick) -> None:
    if not recorded.records:
        told.last_may_be_open = True
        return
    told.under_way = set(recorded.started) - set(recorded.ended)
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


def _note_turn(told: Told, recorded: RecordedTick, ended: TurnCommitted) -> None:
    tick, agent = recorded.tick, ended.about
    for file in ended.report.written_ahead:  # a tool that reaches outside may have changed them since
        told.files.pop(file, None)
    for file in ended.report.removed:
        told.files.pop(file, None)
    for written in ended.report.files:
        told.files[written["path"]] = Written(tick, agent, written["sha256"])
    started = recorded.started.get(agent)
    if ended.state or started:
        told.turns.setdefault(agent, {})[tick] = _ledger_line(started, ended)


def _ledger_line(started: TurnStarted | None, ended: TurnCommitted) -> dict[str, Any]:
    """Return what the agent's ledger must say after a turn: a failed one's state is in its record."""
    if ended.state:
        return {key: ended.state[key] for key in ("status", "credits", "input_tokens", "output_tokens")}
    assert started, "a turn that did not fail has begun"
    before, report = started.state, ended.report
    return {
        "status": report.status,
        "credits": round(before["credits"] + report.credits, 6),
        "input_tokens": before["input_tokens"] + report.input_tokens,
        "output_tokens": before["output_tokens"] + report.output_tokens,
    }
