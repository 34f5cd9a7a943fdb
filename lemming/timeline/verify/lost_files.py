"""Files that committed turns wrote and that are gone, with what the record says was in them.

An entry is gone when it is not there and retention did not remove it. Of other files, which people and tools
may remove, those are told that the newest turn of their agent wrote: what a copy made while the engine ran,
or storage that went back, has lost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, partial

from lemming.kernel.base import paths
from lemming.kernel.base.errors import LemmingError
from lemming.kernel.base.turn_numbers import split_key
from lemming.kernel.files.stamps import is_there
from lemming.kernel.journal.ledger import ticks_kept
from lemming.kernel.journal.lookup import plan_in
from lemming.kernel.journal.records import EntriesExpired, Record, TickCommitted, TurnCommitted
from lemming.kernel.org.organisation import OrgPath
from lemming.timeline.record import TurnRecord, read_tick


@dataclass(frozen=True)
class LostFile:
    """A file that is gone. `content` is what an entry or a memory held; None for other files."""

    file: str
    tick: int
    agent: str
    content: bytes | None


@dataclass
class LastWrites:
    """Which turn wrote each file last, by the journals noted, which are to be noted oldest first."""

    files: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)
    _before: int | None = None

    def note(self, tick: int, records: list[Record]) -> None:
        """Take note of a tick, if it is over: the files of any other are written as it goes on."""
        plan = plan_in(records)
        if plan is None or not isinstance(records[-1], TickCommitted):
            return
        after = plan.after
        if self._before is not None and after is not None and after > self._before:
            # a journal is gone between the two, and with it what retention removed in that tick
            self.note_damaged()
        self._before = tick
        for record in records:
            if isinstance(record, TurnCommitted):
                agent, report = record.about, record.report
                self.newest[agent] = tick
                for file in (*report.removed, *report.written_ahead):  # the latter perhaps by a tool outside
                    self.files.pop(file, None)
                self.files.update((f["path"], (tick, report.turn_key, f["sha256"])) for f in report.files)
            elif isinstance(record, EntriesExpired):
                for file in record.files:
                    self.files.pop(file, None)

    def note_damaged(self) -> None:
        """Take note of a tick that nobody can read: its retention may have removed any entry before it."""
        self.files = {
            file: write
            for file, write in self.files.items()
            if not _is_in("outbox", file, split_key(write[1])[0])
        }

    def lost(self, base: OrgPath) -> Iterator[LostFile]:
        """Yield the files that are gone, oldest first.

        An agent that is gone has taken its files along, and another of its name has no line of their tick.
        """
        in_ledger = cache(partial(_ticks_in_ledger, base))
        for file, (tick, key, digest) in self.files.items():
            agent, _ = split_key(key)
            is_entry = _is_in("outbox", file, agent)
            # of other files only the newest turn's: what was there longer, a person may have taken away
            if file.startswith("/") or not (is_entry or tick == self.newest[agent]):
                continue
            if not is_there(f"{base}/{file}") and tick in in_ledger(agent):
                yield LostFile(file, tick, agent, _recorded(base, file, tick, key, digest))


def _ticks_in_ledger(base: OrgPath, agent: str) -> frozenset[int]:
    """Return the ticks of which an agent's ledger has a line; none without a resume."""
    has_resume = is_there(f"{base}/{paths.resume_file(agent)}")
    return frozenset(ticks_kept(base, agent) if has_resume else ())


def _recorded(base: OrgPath, file: str, tick: int, key: str, digest: str) -> bytes | None:
    """Return what a turn wrote to its own outbox or memory; None for other places, and if nothing tells."""
    agent, _ = split_key(key)
    if not (_is_in("outbox", file, agent) or _is_in("memory", file, agent)):
        return None
    try:
        turn = read_tick(base, tick).turn_of(key)
        content = _content(turn, file) if turn else None
    except LemmingError:
        return None
    # a record that was read otherwise than it was written must put nothing back
    return content if content is not None and hashlib.sha256(content).hexdigest() == digest else None


def _content(turn: TurnRecord, file: str) -> bytes | None:
    """Return an entry or a memory as the engine makes one: a tool's own file in their place is neither."""
    if _is_in("outbox", file, turn.agent):
        return next((entry.content for entry in turn.entries if entry.file == file), None)
    key = file.rpartition("/")[2].removesuffix(".json")
    if key not in turn.memory or paths.memory_file(turn.agent, key) != file:
        return None
    return turn.writes[file].content


def _is_in(folder: str, file: str, agent: str) -> bool:
    above, _, name = file.rpartition("/")
    return above == f"agents/{agent}/{folder}" and bool(name)
