"""What the journals tell of an organisation's files, in one pass: a note of each change, no contents.

Also when agents and entries were first there, by which arrivals from outside are dated.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lemming.kernel.base.errors import CorruptState
from lemming.kernel.files.fields import Json
from lemming.kernel.journal.file import journal_ticks, prompts_in, read_journal
from lemming.kernel.journal.read_mark import ReadMark
from lemming.kernel.journal.records import (
    EntriesExpired,
    Record,
    TickCommitted,
    TickStarted,
    TurnCommitted,
    TurnEnded,
    TurnStarted,
)
from lemming.kernel.journal.report import TurnReport
from lemming.kernel.messages import EntryName
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.firing_plan import Plan


@dataclass
class TickChanges:
    """What one tick did to files: who wrote each, None for one that was taken away; in that order.

    `states`: where its turns found their agents, as their ledgers said it.
    """

    at: str = ""
    changes: dict[str, str | None] = field(default_factory=dict)
    states: dict[str, Json] = field(default_factory=dict)
    reports: list[TurnReport] = field(default_factory=list)
    is_over: bool = False


@dataclass
class FileChanges:
    """What the journals of an organisation tell, oldest first.

    `written`: files that turns wrote, ever. `expired`: entries that retention removed and no turn told of.
    `named`: the first tick whose plan names an agent. `seen`: the first whose prompts showed an entry.
    """

    ticks: dict[int, TickChanges] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    expired: set[str] = field(default_factory=set)
    named: dict[str, int] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)

    def when_seen(self, name: EntryName) -> int | None:
        """Return the tick in which a prompt first showed an entry; None when none did."""
        return self.seen.get(name.identity, self.seen.get(name.id))


def read_file_changes(base: OrgPath, *, despite_damage: bool = False) -> FileChanges:
    """Return what all journals tell. Those that are damaged are left out, or raise `CorruptState`."""
    told, prompts = FileChanges(), prompts_in(base)
    for tick in journal_ticks(base):
        try:
            records = read_journal(base, tick, prompts=prompts)
        except CorruptState:
            if not despite_damage:
                raise
            continue  # the past with a hole in it, where that is better than none
        told.ticks[tick] = TickChanges()
        for record in records:
            _take_note(told, tick, record)
    told.expired -= told.written  # those that turns wrote are told of already
    return told


def _take_note(told: FileChanges, tick: int, record: Record) -> None:
    of_tick = told.ticks[tick]
    match record:
        case TickStarted():
            of_tick.at = record.at
            for name in Plan.of(record).everyone:
                told.named.setdefault(name, tick)
        case TurnStarted():
            of_tick.states.setdefault(record.agent, record.state)  # as its first turn in the tick found it
            # by its whole name where the mark tells it: an id that a person gave may come twice
            named = {it.partition("_")[2]: it for it in ReadMark.from_json(record.read).also if "/" in it}
            for identity in (*named.values(), *(it for it in record.entries if it not in named)):
                told.seen.setdefault(identity, tick)
        case TurnEnded(report=report):
            of_tick.reports.append(report)
            if isinstance(record, TurnCommitted):
                files = [*report.written_ahead, *(file["path"] for file in report.files)]
                told.written.update(files)
                of_tick.changes |= dict.fromkeys(files, report.turn_key)
                of_tick.changes |= dict.fromkeys(report.removed)
        case EntriesExpired():
            told.expired.update(record.files)
            of_tick.changes |= dict.fromkeys(record.files)
        case TickCommitted():
            of_tick.is_over = True
