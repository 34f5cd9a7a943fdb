"""Which turn wrote a file, asked from the newest journal back; nothing is kept but in memory.

Journals are read once each, only as far back as an answer needs, and only taken apart where they name what is
asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path

from lemming import paths
from lemming.agents import agent_folders
from lemming.errors import CorruptState, UsageError
from lemming.files.jsontext import compact
from lemming.journal.file import found_in, journal_ticks
from lemming.messages import list_outbox
from lemming.timeline.gaps import lost_between
from lemming.timeline.record import RecordedTick, TurnRecord, read_tick

Moment = tuple[int, int]
"""A tick, and a place in its order. A turn sees what was written before its moment."""

RECORDS_KEPT = 64
LOST_NAMED = 5
_RESUME = re.compile(rb"agents/[^/\"]+/resume\.json")


@dataclass(frozen=True)
class Write:
    """A turn wrote a file with this content (SHA-256)."""

    moment: Moment
    agent: str
    path: str
    digest: str


@dataclass
class _Tick:
    """What the index keeps of one tick; `after` is the newest tick before it that had a journal."""

    writes: dict[str, list[Write]] = field(default_factory=dict)
    outside: dict[str, set[str]] = field(default_factory=dict)
    expired: frozenset[str] = frozenset()
    persons: frozenset[str] = frozenset()
    after: int | None = None


class Writings:
    """What the turns of an organisation wrote. `damaged`: ticks whose journals cannot be read."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.damaged: set[int] = set()
        self._ticks = journal_ticks(base)
        self._index: dict[int, _Tick] = {}
        self._resumes: dict[int, frozenset[bytes]] = {}
        self.tick = lru_cache(RECORDS_KEPT)(self._read)

    def turn(self, tick: int, agent: str) -> TurnRecord | None:
        """Return one turn; None when no journal that can be read tells of it."""
        record = self.tick(tick)
        return record.turn_of(agent) if record else None

    def last_write(self, path: str, *, before: Moment | None = None) -> Write | None:
        """Return the newest write of a file, or the newest before a moment; None when no turn wrote it."""
        for tick in reversed(self._ticks):
            if before is not None and tick > before[0]:
                continue
            if not self._may_name(tick, path):
                continue
            for write in reversed(self._of(tick).writes.get(path, ())):
                if before is None or write.moment < before:
                    return write
        return None

    def write_in(self, tick: int, path: str) -> Write | None:
        """Return the write of a file in one tick."""
        return next(iter(self._of(tick).writes.get(path, ())), None)

    def content(self, write: Write) -> bytes:
        """Return what was written."""
        turn = self.turn(write.moment[0], write.agent)
        assert turn is not None  # the write was found in its record
        return turn.writes[write.path].content

    def outside_tools_since(self, agent: str, tick: int) -> list[str]:
        """Return the tools with effects of their own that an agent has used in this tick or later."""
        names = {name for at in self._ticks if at >= tick for name in self._of(at).outside.get(agent, ())}
        return sorted(names)

    def expired_in(self, path: str) -> int | None:
        """Return the tick in which retention removed a file."""
        return next((tick for tick in reversed(self._ticks) if path in self._of(tick).expired), None)

    def lost(self, *, after: int = 0, before: int | None = None) -> str:
        """Name the ticks between two whose journals are gone or cannot be read; empty when there are none.

        `after` and `before` are not among them. Without `before`: up to the newest journal.
        """
        end = (self._ticks[-1] + 1 if self._ticks else 0) if before is None else before
        named = list(islice((tick for tick in self._lost(after, end) if after < tick < end), LOST_NAMED + 1))
        more = " and others" if len(named) > LOST_NAMED else ""
        return ", ".join(map(str, named[:LOST_NAMED])) + more

    def _lost(self, after: int, end: int) -> Iterator[int]:
        """Yield the ticks around a span whose journals are gone or cannot be read; quiet ones are not."""
        for before, tick in zip([None, *self._ticks], self._ticks, strict=False):
            if tick > after and (before is None or before < end):
                yield from lost_between(before, self._of(tick).after)
                if tick in self.damaged:
                    yield tick

    def is_for_a_person(self, agent: str, tick: int) -> bool:
        """Return whether a tick's plan says that a person speaks for the agent."""
        return agent in self._of(tick).persons

    def path_of_entry(self, identity: str) -> str | None:
        """Return the path of an entry that is there or was written by a turn; None for an unknown id."""
        for author in agent_folders(self.base):
            if paths.AGENT_NAME.match(author):
                for name in list_outbox(self.base, author):
                    if name.id == identity:
                        return name.file
        return next((path for path in self._paths() if path.endswith(f"_{identity}.json")), None)

    def _paths(self) -> Iterator[str]:
        for tick in reversed(self._ticks):
            yield from self._of(tick).writes

    def _read(self, tick: int) -> RecordedTick | None:
        try:
            return read_tick(self.base, tick)
        except UsageError:  # no journal
            return None
        except CorruptState:
            self.damaged.add(tick)
            return None

    def _may_name(self, tick: int, path: str) -> bool:
        """Return whether a journal can tell of a write of this file: its bytes name it, or nobody can say.

        Resumes are asked for with every turn and hardly ever written, so those that a journal names are kept.
        """
        wanted = compact(path)[1:-1]
        if tick in self._index:
            return True
        if not path.endswith("/resume.json"):
            return bool(self._found(tick, re.compile(re.escape(wanted))))
        if tick not in self._resumes:
            self._resumes[tick] = self._found(tick, _RESUME)
        return wanted in self._resumes[tick]

    def _found(self, tick: int, pattern: re.Pattern[bytes]) -> frozenset[bytes]:
        try:
            return found_in(self.base, tick, pattern)
        except CorruptState:
            self.damaged.add(tick)
            return frozenset()

    def _of(self, tick: int) -> _Tick:
        if tick not in self._index:
            self._index[tick] = self._indexed(tick)
        return self._index[tick]

    def _indexed(self, tick: int) -> _Tick:
        record = self.tick(tick)
        return _indexed(record) if record else _Tick()


def _indexed(record: RecordedTick) -> _Tick:
    index = _Tick(expired=frozenset(record.expired), persons=record.people, after=record.begin.after)
    for call in record.announced.values():
        index.outside.setdefault(call.agent, set()).add(call.tool)
    for place, agent in enumerate(record.begin.order):
        for path, digest in _written(record, agent):
            write = Write((record.tick, place), agent, path, digest)
            index.writes.setdefault(path, []).append(write)
    return index


def _written(record: RecordedTick, agent: str) -> Iterator[tuple[str, str]]:
    """Yield the files that a turn wrote, with their digests; of one under way none are there yet."""
    ended = record.ended.get(agent)
    if ended is None:
        return
    if ended.report.written_ahead:  # of those only the whole turn tells the content
        turn = record.turn_of(agent)
        yield from ((path, effect.digest) for path, effect in (turn.writes if turn else {}).items())
    else:
        yield from ((file["path"], file["sha256"]) for file in ended.report.files)
