"""File changes recorded in the journals, collected in a single pass without file contents.

Also records the first appearance of agents and entries, used to date external arrivals.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lemming.kernel.base.errors import CorruptState
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.journal_file import journal_ticks, make_prompt_reader, read_journal
from lemming.kernel.journal.journal_records import (
    EntriesExpired,
    Record,
    TickCommitted,
    TickStarted,
    TurnCommitted,
    TurnEnded,
    TurnStarted,
    TurnTold,
)
from lemming.kernel.journal.read_cursor import ReadMark
from lemming.kernel.journal.turn_report import TurnReport
from lemming.kernel.messages import EntryName
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.firing_plan import TickPlan


@dataclass
class TickChanges:
    """The file changes of a tick, in order: the author of each written file, or None for a removed file.

    `states`: the state of each agent before its first turn in the tick, in the form of the ledger.
    """

    at: str = ""
    changes: dict[str, str | None] = field(default_factory=dict)
    states: dict[str, Json] = field(default_factory=dict)
    reports: list[TurnReport] = field(default_factory=list)
    is_committed: bool = False


@dataclass
class FileChanges:
    """The file changes of all journals, oldest first.

    `written`: all files ever written in turns. `expired`: entries removed by retention and not written in any turn.
    `first_planned`: the first tick with an agent in its plan. `first_shown`: the first tick with an entry in a prompt.
    """

    ticks: dict[int, TickChanges] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    expired: set[str] = field(default_factory=set)
    first_planned: dict[str, int] = field(default_factory=dict)
    first_shown: dict[str, int] = field(default_factory=dict)

    def first_visible_tick(self, name: EntryName) -> int | None:
        """Return the first tick with the entry in a prompt, or None if no prompt contained the entry."""
        return self.first_shown.get(name.identity, self.first_shown.get(name.id))


def load_file_changes(base: OrgPath, *, despite_damage: bool = False) -> FileChanges:
    """Load the file changes of all journals. A damaged journal is skipped, or raises `CorruptState`."""
    changes, prompts = FileChanges(), make_prompt_reader(base)
    for tick in journal_ticks(base):
        try:
            records = read_journal(base, tick, prompts=prompts)
        except CorruptState:
            if not despite_damage:
                raise
            continue  # the past with a hole in it, where that is better than none
        changes.ticks[tick] = TickChanges()
        for record in records:
            _add_record(changes, tick, record)
    changes.expired -= changes.written  # files written by turns are already listed
    return changes


def _add_record(file_changes: FileChanges, tick: int, record: Record) -> None:
    tick_changes, first_shown = file_changes.ticks[tick], file_changes.first_shown
    match record:
        case TickStarted():
            tick_changes.at = record.at
            for name in TickPlan.from_record(record).all_agents:
                file_changes.first_planned.setdefault(name, tick)
        case TurnStarted():
            tick_changes.states.setdefault(record.agent, record.state)  # as its first turn in the tick found it
            # by its whole name where the mark tells it: an id that a person gave may come twice
            names_by_id = {
                entry_id.partition("_")[2]: entry_id
                for entry_id in ReadMark.from_json(record.read).also
                if "/" in entry_id
            }
            for identity in (
                *names_by_id.values(),
                *(entry_id for entry_id in record.entries if entry_id not in names_by_id),
            ):
                first_shown[identity] = min(tick, first_shown.get(identity, tick))
        case TurnTold():  # it came while the tick ran: no prompt of the tick had it from the beginning
            for identity in record.entries:
                first_shown.setdefault(identity, tick + 1)
        case TurnEnded(report=report):
            tick_changes.reports.append(report)
            if isinstance(record, TurnCommitted):
                files = [*report.written_ahead, *(file["path"] for file in report.files)]
                file_changes.written.update(files)
                tick_changes.changes |= dict.fromkeys(files, report.turn_key)
                tick_changes.changes |= dict.fromkeys(report.removed)
        case EntriesExpired():
            file_changes.expired.update(record.files)
            tick_changes.changes |= dict.fromkeys(record.files)
        case TickCommitted():
            tick_changes.is_committed = True
