"""Lost files: files written in committed turns and now missing, with their recorded content.

An entry is lost if the file is missing and retention did not remove it. People and tools may remove other
files; these are reported only if the newest turn of their agent wrote them, which covers losses by a copy
during a run or by storage that went back in time.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, partial

from lemming.journal_tools.recorded_tick import TurnRecord, load_tick_record
from lemming.kernel.base import paths
from lemming.kernel.base.errors import LemmingError
from lemming.kernel.base.turn_numbers import split_key
from lemming.kernel.files import fs
from lemming.kernel.files.stat_cache import path_exists
from lemming.kernel.journal.journal_parser import find_plan
from lemming.kernel.journal.journal_records import EntriesExpired, Record, TickCommitted, TurnCommitted
from lemming.kernel.journal.ledger import FILE_LIMIT_BYTES
from lemming.kernel.org.organisation import OrgPath

_TICKS = re.compile(rb'^\{"tick":([0-9]{1,12}),', re.MULTILINE)


@dataclass(frozen=True)
class LostFile:
    """A missing file. `content` is the content of an entry or a memory, or None for other files."""

    file: str
    tick: int
    agent: str
    content: bytes | None


@dataclass
class LastWrites:
    """The last write of each file, from the journals added so far, which must be added oldest first."""

    files: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)
    _previous_tick: int | None = None

    def add_tick(self, tick: int, records: list[Record]) -> None:
        """Add a committed tick; an uncommitted tick is ignored, because its files are still being written."""
        plan = find_plan(records)
        if plan is None or not isinstance(records[-1], TickCommitted):
            return
        predecessor = plan.after
        if self._previous_tick is not None and predecessor is not None and predecessor > self._previous_tick:
            # a journal between the two was removed, and with it the record of that tick's retention
            self.add_unreadable_tick()
        self._previous_tick = tick
        for record in records:
            if isinstance(record, TurnCommitted):
                agent, report = record.agent_name, record.report
                self.newest[agent] = tick
                # After `written_ahead`, a tool with side effects may have changed or removed the files.
                for file in (*report.removed, *report.written_ahead):
                    self.files.pop(file, None)
                self.files.update(
                    (file_write["path"], (tick, report.turn_key, file_write["sha256"])) for file_write in report.files
                )
            elif isinstance(record, EntriesExpired):
                for file in record.files:
                    self.files.pop(file, None)

    def add_unreadable_tick(self) -> None:
        """Add an unreadable tick: its retention may have removed any earlier entry."""
        self.files = {
            file: write
            for file, write in self.files.items()
            if not _is_file_of_agent("outbox", file, split_key(write[1])[0])
        }

    def find_lost_files(self, base: OrgPath) -> Iterator[LostFile]:
        """Yield the lost files, oldest first.

        Files of a removed agent are not lost, and a new agent with the same name has no ledger line of the tick.
        """
        in_ledger = cache(partial(_list_ledger_ticks, base))
        for file, (tick, key, digest) in self.files.items():
            agent, _ = split_key(key)
            is_entry = _is_file_of_agent("outbox", file, agent)
            # of other files only the newest turn's: a person may have removed older ones
            if file.startswith("/") or not (is_entry or tick == self.newest[agent]):
                continue
            if not path_exists(f"{base}/{file}") and tick in in_ledger(agent):
                yield LostFile(file, tick, agent, _find_recorded_content(base, file, tick, key, digest))


def _list_ledger_ticks(base: OrgPath, agent: str) -> frozenset[int]:
    """Return the ticks with a line in an agent's ledger, or an empty set without a resume."""
    has_resume = path_exists(f"{base}/{paths.resume_file(agent)}")
    return frozenset(recorded_ticks(base, agent) if has_resume else ())


def _find_recorded_content(base: OrgPath, file: str, tick: int, key: str, digest: str) -> bytes | None:
    """Return the content a turn wrote to its outbox or memory. None for other files and without a usable record."""
    agent, _ = split_key(key)
    if not (_is_file_of_agent("outbox", file, agent) or _is_file_of_agent("memory", file, agent)):
        return None
    try:
        turn = load_tick_record(base, tick).find_turn(key)
        content = _render_content(turn, file) if turn else None
    except LemmingError:
        return None
    # a record that was altered must restore nothing
    return content if content is not None and hashlib.sha256(content).hexdigest() == digest else None


def _render_content(turn: TurnRecord, file: str) -> bytes | None:
    """Return an entry or a memory in the engine's form; a tool's own file at the same path is neither."""
    if _is_file_of_agent("outbox", file, turn.agent):
        return next((entry.content for entry in turn.entries if entry.file == file), None)
    key = file.rpartition("/")[2].removesuffix(".json")
    if key not in turn.memory or paths.memory_file(turn.agent, key) != file:
        return None
    return turn.writes[file].content


def _is_file_of_agent(folder: str, file: str, agent: str) -> bool:
    parent, _, name = file.rpartition("/")
    return parent == f"agents/{agent}/{folder}" and bool(name)


def recorded_ticks(base: OrgPath, agent_name: str) -> list[int]:
    """Return the ticks with a line in an agent's ledger, in ledger order; an empty list if it is unreadable."""
    try:
        raw = fs.read_bytes(f"{base}/{paths.ledger_file(agent_name)}", FILE_LIMIT_BYTES)
    except OSError:
        return []
    return list(map(int, _TICKS.findall(raw)))
