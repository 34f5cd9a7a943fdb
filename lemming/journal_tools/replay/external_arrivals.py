"""Files from people, each with the tick of arrival, and the file changes in the journals.

A replay starts from files not written in any turn: resumes, settings, shared files, people's entries. Each file is put
in place before the tick with the first evidence in the journals: an agent's files before the first plan with the agent,
a person's entry when written or first in a prompt, all other files at the beginning.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from lemming.git_history.recorder import list_external_files
from lemming.journal_tools.verify.state_root import list_counted_files
from lemming.kernel.agents import survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.base.errors import ConfigError, CorruptState, DiskError
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.files import fs
from lemming.kernel.files.field_types import Json
from lemming.kernel.files.json_documents import unreadable_reason
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
from lemming.kernel.journal.tick_plan import TickPlan
from lemming.kernel.journal.turn_report import TurnReport
from lemming.kernel.messages import EntryName, OutboxEntry, parse_file_names
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import OrgPath
from lemming.libraries.outbox_files import read_entry
from lemming.libraries.tool_file_search import list_tool_files

FILE_LIMIT_BYTES = 1 << 30
_TRUST = re.compile(r'^\{"trust": "[a-z][a-z0-9_-]*", ')


@dataclass
class Arrivals:
    """Files by the tick before which each must be in place, or None for files after the last tick.

    `texts` contains the files no disk holds any more.
    """

    files: dict[int | None, list[str]] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)

    def deliver(self, source: Path, destination: Path, tick: int | None) -> None:
        """Copy the files arriving at a tick. Raises `DiskError`."""
        for file in self.files.get(tick, ()):
            fs.write_atomic(destination, file, self.texts[file] if file in self.texts else _load_file(source, file))


def find_arrivals(
    base: OrgPath, file_changes: FileChanges | None = None, files: Iterable[str] | None = None
) -> Arrivals:
    """Return the arrivals of all files, dated by the journals, of which at least one must exist.

    `file_changes`: the changes, if already loaded. `files`: the files to date, by default all files that count.
    """
    file_changes = file_changes or load_file_changes(base)
    arrivals = Arrivals()
    agents = survey_agents(base).agents.values()
    counted = list_counted_files(base) if files is None else files
    tool_files = list_tool_files(Path(base), load_config(base).org.tool_files) if files is None else []
    for file in dict.fromkeys([*counted, *list_external_files(base, agents), *tool_files]):
        is_ledger = file.startswith("agents/") and file.split("/")[2:] == ["turns.jsonl"]
        if file != paths.TICK_FILE and file not in file_changes.written and not is_ledger:
            arrivals.files.setdefault(_find_arrival_tick(base, file_changes, file), []).append(file)
    for file in sorted(file_changes.expired):
        name = _parse_entry_path(file)
        tick = file_changes.first_visible_tick(name)
        if tick is not None and (content := _restore_quoted_entry(base, tick, name)):
            arrivals.files.setdefault(tick, []).append(file)
            arrivals.texts[file] = content
    return arrivals


def _find_arrival_tick(base: OrgPath, file_changes: FileChanges, file: str) -> int | None:
    """Return the tick before which a file must exist, or None for a file from after the last tick."""
    parts = file.split("/")
    if parts[0] != "agents" or len(parts) < 3:
        return min(file_changes.ticks)
    if parts[2] != "outbox" or len(parts) != 4 or not paths.ENTRY_FILE.match(parts[3]):
        return file_changes.first_planned.get(parts[1])
    # an entry: the tick of the first prompt with the entry, or of the entry's own timestamp
    name = _parse_entry_path(file)
    first_visible = file_changes.first_visible_tick(name)
    if first_visible is not None and not name.has_engine_id:  # placed by hand: its fields prove nothing
        return first_visible
    created_at = ""
    with contextlib.suppress(ConfigError, FileNotFoundError):
        created_at = read_entry(base, name).created_at
    for number, tick in file_changes.ticks.items():
        if number >= name.tick and (number == first_visible or not _is_later(created_at, tick.at)):
            return number
    return first_visible


def _restore_quoted_entry(base: OrgPath, tick: int, name: EntryName) -> bytes:
    """Return a removed entry as quoted in the first prompt with the entry, or empty bytes.

    The time of writing is not in the prompt and does not matter, because retention removes the entry again.
    """
    line_start = f'{{"id": "{name.id}", "from": "{name.author}", "tick": {name.tick}, '
    for record in read_journal(base, tick):
        if not isinstance(record, TurnStarted) or name.id not in record.entries:
            continue
        for line in "\n".join(message["content"] for message in record.prompt).splitlines():
            # The label is added by the prompt, and is no part of the entry.
            line = _TRUST.sub("{", line)
            if not line.startswith(line_start):
                continue
            with contextlib.suppress(JsonProblem):
                quoted = parse(line)
                content = (quoted["kind"], quoted["payload"], quoted.get("tags", []))
                return OutboxEntry(name.id, name.tick, name.author, *content).content
    return b""


def _parse_entry_path(file: str) -> EntryName:
    _, author, _, name = file.split("/")
    return parse_file_names(author, [name])[0]


def _is_later(time: str, other: str) -> bool:
    """Return True if a timestamp is later than another; an invalid timestamp is never later."""
    try:
        return parse_timestamp(time) > parse_timestamp(other)
    except ValueError:
        return False


def _load_file(base: OrgPath, file: str) -> bytes:
    try:
        return fs.read_bytes(base / file, FILE_LIMIT_BYTES)
    except OSError as error:
        raise DiskError(unreadable_reason(error), where=file, hint="check its owner and mode") from error


@dataclass
class TickChanges:
    """The file changes of a tick, in order: the author of each written file, or None for a removed file.

    `states`: the state of each agent before the first turn in the tick, in the form of the ledger.
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
    `first_planned`: the first tick with an agent in the plan. `first_shown`: the first tick with an entry in a prompt.
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
            whole_names = [identity for identity in ReadMark.from_json(record.read).also if "/" in identity]
            named = {identity.partition("_")[2] for identity in whole_names}
            for identity in (*whole_names, *(entry_id for entry_id in record.entries if entry_id not in named)):
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
