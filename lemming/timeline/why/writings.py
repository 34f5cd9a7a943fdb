"""Which turn wrote a file, asked from the newest journal back; nothing is kept but in memory.

An entry's name tells its tick, an agent's ledger the ticks of its turns, plans when an agent came. For the
rest journals are looked through, only as far back as an answer needs.
"""

from __future__ import annotations

import contextlib
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache, partial
from itertools import islice
from typing import NamedTuple

from lemming.kernel.agents import agent_folders
from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState, UsageError
from lemming.kernel.base.integers import LAST_TICK
from lemming.kernel.base.jsontext import JsonProblem, compact, parse
from lemming.kernel.base.turn_numbers import split_key
from lemming.kernel.files import fs
from lemming.kernel.journal.checksums import holds_together
from lemming.kernel.journal.file import journal_ticks, prompts_in, raw_journal, read_plan
from lemming.kernel.journal.ledger import ticks_kept
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.firing_plan import Plan
from lemming.timeline.gaps import lost_between
from lemming.timeline.record import RecordedTick, TurnRecord, read_tick

Moment = tuple[int, int]
"""A tick, and a place in its order. A turn sees what was written before its moment."""

RECORDS_KEPT = 64
LOST_NAMED = 5


@dataclass(frozen=True)
class Write:
    """A turn wrote a file with this content (SHA-256)."""

    moment: Moment
    agent: str
    path: str
    digest: str
    key: str
    """What tells the turn from the others of its tick."""


@dataclass
class _Tick:
    """What the index keeps of one tick; `after` is the newest tick before it that had a journal."""

    writes: dict[str, list[Write]] = field(default_factory=dict)
    expired: frozenset[str] = frozenset()
    removed: dict[str, str] = field(default_factory=dict)
    persons: frozenset[str] = frozenset()
    after: int | None = None


class Writings:
    """What the turns of an organisation wrote. `damaged`: ticks whose journals cannot be read."""

    def __init__(self, base: OrgPath, progress: Callable[[str], object] = str) -> None:
        self.base = base
        self._search = WritingSearch(base, progress)
        self.damaged = self._search.damaged
        self._ticks, self._prompts = journal_ticks(base), prompts_in(base)
        self._index: dict[int, _Tick] = {}
        self._in_ledger = cache(partial(ticks_kept, base))
        self._creation = cache(self._find_creation)
        self.tick = lru_cache(RECORDS_KEPT)(self._read)

    def turn(self, tick: int, key: str) -> TurnRecord | None:
        """Return one turn; None when no journal that can be read tells of it."""
        record = self.tick(tick)
        try:
            return record.turn_of(key) if record else None
        except CorruptState:  # what it was shown is gone
            self.damaged.add(tick)
            return None

    def last_write(self, path: str, *, before: Moment | None = None, surely: bool = False) -> Write | None:
        """Return the newest write of a file, or the newest before a moment; None when no turn wrote it.

        Where its path tells whose turns may have written it, the agent's ledger tells their ticks. `surely`:
        it is not relied on; all journals are looked through.
        """
        until = before[0] if before else LAST_TICK
        for tick in self._every_tick(path, until) if surely else self._likely_ticks(path, until):
            for write in reversed(self._of(tick).writes.get(path, ())):
                if before is None or write.moment < before:
                    return write
        return None

    def _likely_ticks(self, path: str, until: int) -> Iterator[int]:
        """Yield the ticks that may have written a file, newest first."""
        agent, folder, name = _place_of(path)
        if folder == "outbox" and (match := paths.ENTRY_FILE.match(name)):
            yield from [tick for tick in [int(match[1])] if tick <= until and self._has(tick)]
        elif name == "resume.json" and not folder and agent:
            first = min([tick for tick in self._in_ledger(agent) if tick <= until], default=until)
            yield from self._creation(agent, first)
        elif folder == "memory":
            own = [tick for tick in reversed(self._in_ledger(agent)) if tick <= until and self._has(tick)]
            yield from (tick for tick in own if self._may_name(tick, path))
            yield from self._every_tick(path, until)
        else:
            yield from self._every_tick(path, until)

    def _every_tick(self, path: str, until: int) -> Iterator[int]:
        ticks = reversed(self._ticks[: bisect_right(self._ticks, until)])
        return (tick for tick in ticks if self._may_name(tick, path))

    def _find_creation(self, agent: str, first: int) -> list[int]:
        """Return the newest tick before `first` whose plan does not name an agent that the next plan names.

        No turn but one of that tick can have made it. It was there all the time in which it had turns, of
        which `first` is the first.
        """
        high = bisect_right(self._ticks, first) - 1
        low, step = high, 1
        while low >= 0 and self._is_planned(agent, low):
            high, low, step = low, low - step, step * 2
        low = max(low, -1)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._is_planned(agent, middle) else (middle, high)
        return [self._ticks[low]] if low >= 0 else []

    def _is_planned(self, agent: str, number: int) -> bool:
        """Return whether the plan of a journal names an agent, as far as it can be read."""
        try:
            first = read_plan(self.base, self._ticks[number])
        except CorruptState:
            self.damaged.add(self._ticks[number])
            return True
        return first is None or agent in Plan.of(first).everyone

    def _has(self, tick: int) -> bool:
        place = bisect_left(self._ticks, tick)
        return self._ticks[place : place + 1] == [tick]

    def write_in(self, tick: int, path: str) -> Write | None:
        """Return the write of a file in one tick."""
        return next(iter(self._of(tick).writes.get(path, ())), None)

    def content(self, write: Write) -> bytes:
        """Return what was written."""
        turn = self.turn(write.moment[0], write.key)
        assert turn is not None  # the write was found in its record
        return turn.writes[write.path].content

    def outside_tools_since(self, agent: str, tick: int) -> list[str]:
        """Return the tools with effects of their own that an agent has used in this tick or later."""
        since = self._ticks[bisect_left(self._ticks, tick) :]
        return sorted({tool for at in since for user, tool in self._search.traces(at).tools if user == agent})

    def expired_in(self, path: str) -> int | None:
        """Return the tick in which retention removed an entry; None for what it did not remove."""
        match = paths.ENTRY_FILE.match(path.rpartition("/")[2])
        since = self._ticks[bisect_left(self._ticks, int(match[1])) :] if match else []
        named = (tick for tick in since if self._search.names(tick, path))
        return next((tick for tick in named if path in self._of(tick).expired), None)

    def removed_in(self, path: str, after: int) -> tuple[str, int] | None:
        """Return who took a file away, from a tick on, and in which; None when no turn is known to have."""
        since = self._ticks[bisect_left(self._ticks, after) :]
        named = (tick for tick in since if self._search.names(tick, path))
        found = ((self._of(tick).removed[path], tick) for tick in named if path in self._of(tick).removed)
        return next(found, None)

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
                if before is None or before + 1 < tick:
                    yield from lost_between(before, self._of(tick).after)
                if not self._search.traces(tick).is_whole or tick in self.damaged:
                    yield tick

    def is_for_a_person(self, agent: str, tick: int) -> bool:
        """Return whether a tick's plan says that a person speaks for the agent."""
        return agent in self._of(tick).persons

    def path_of_entry(self, identity: str) -> str | None:
        """Return the path of an entry that is there or was written by a turn; None for an unknown id."""
        if identity in self._entries:
            return self._entries[identity]
        end = f"_{identity}.json"
        named = (tick for tick in reversed(self._ticks) if self._search.names(tick, end))
        return next((path for tick in named for path in self._of(tick).writes if path.endswith(end)), None)

    @cached_property
    def _entries(self) -> dict[str, str]:
        """The paths of the entries that are there, by their ids; of several with one id the first."""
        found: dict[str, str] = {}
        for author in filter(paths.AGENT_NAME.match, agent_folders(self.base)):
            folder = paths.outbox_folder(author)
            with contextlib.suppress(OSError):
                for file in fs.list_names(f"{self.base}/{folder}"):
                    if match := paths.ENTRY_FILE.match(file):
                        found.setdefault(match[2], f"{folder}/{file}")
        return found

    def _read(self, tick: int) -> RecordedTick | None:
        try:
            return read_tick(self.base, tick, self._prompts)
        except UsageError:  # no journal
            return None
        except CorruptState:
            self.damaged.add(tick)
            return None

    def _may_name(self, tick: int, path: str) -> bool:
        return tick in self._index or self._search.names_file(tick, path)

    def _of(self, tick: int) -> _Tick:
        if tick not in self._index:
            self._index[tick] = self._indexed(tick)
        return self._index[tick]

    def _indexed(self, tick: int) -> _Tick:
        record = self.tick(tick)
        return _indexed(record) if record else _Tick()


def _place_of(path: str) -> tuple[str, str, str]:
    """Return the agent, the folder and the name of a file that is an agent's own; else empty texts."""
    parts = path.split("/")
    if parts[0] == "agents" and len(parts) in (3, 4) and paths.AGENT_NAME.match(parts[1]):
        return parts[1], parts[2] if len(parts) == 4 else "", parts[-1]
    return "", "", ""


def _indexed(record: RecordedTick) -> _Tick:
    index = _Tick(expired=frozenset(record.expired), persons=record.people, after=record.begin.after)
    for ended in record.ended.values():
        index.removed.update(dict.fromkeys(ended.report.removed, ended.about))
    for place, key in enumerate(record.turn_keys):
        for path, digest in _written(record, key):
            write = Write((record.tick, place), split_key(key)[0], path, digest, key)
            index.writes.setdefault(path, []).append(write)
    return index


def _written(record: RecordedTick, key: str) -> Iterator[tuple[str, str]]:
    """Yield the files that a turn wrote, with their digests; of one under way none are there yet."""
    ended = record.ended.get(key)
    if ended is None:
        return
    if ended.report.written_ahead:  # of those only the whole turn tells the content
        turn = record.turn_of(key)
        yield from ((path, effect.digest) for path, effect in (turn.writes if turn else {}).items())
    else:
        yield from ((file["path"], file["sha256"]) for file in ended.report.files)


# --- what the bytes of journals tell -------------------------------------------------------------
# Taking a journal apart costs twenty times as much as looking through its bytes, so that is done only where
# these say that it names what is asked for.


_STRING = rb'"((?:[^"\\]|\\.)*)"'
_PATH = re.compile(rb'"path":' + _STRING)
_AHEAD = re.compile(rb'"written_ahead":\[((?:' + _STRING + rb",?)*)\]")
_STRINGS = re.compile(_STRING)
_NAMES_FILES = (b'{"type":"turn_committed"', b'{"type":"tool_finished"')
_TOOL_STARTED = b'{"type":"tool_started"'


class Traces(NamedTuple):
    """What a journal's bytes tell: the paths they name, as JSON writes them, and who began which tool.

    Entries are left out, as their names tell the tick. `is_whole`: each line follows from the one before.
    """

    paths: frozenset[bytes] = frozenset()
    tools: frozenset[tuple[str, str]] = frozenset()
    is_whole: bool = True


class WritingSearch:
    """Looks through journals, each once. `damaged`: the ticks of those that were met and are not whole."""

    def __init__(self, base: OrgPath, progress: Callable[[str], object]) -> None:
        self._base, self._progress = base, progress
        self._traces: dict[int, Traces] = {}
        self.damaged: set[int] = set()

    def names_file(self, tick: int, path: str) -> bool:
        """Return whether a journal tells of a write of a file other than an entry, or nobody can say."""
        return compact(path)[1:-1] in self.traces(tick).paths

    def names(self, tick: int, text: str) -> bool:
        """Return whether a text stands anywhere in a journal."""
        return text.encode() in self._raw(tick)

    def traces(self, tick: int) -> Traces:
        """Return what a journal's bytes tell; nothing for one that cannot be read."""
        if tick not in self._traces:
            self._traces[tick] = traces = _traces_in(self._raw(tick))
            if not traces.is_whole:
                self.damaged.add(tick)
        return self._traces[tick]

    def _raw(self, tick: int) -> bytes:
        self._progress(f"the journal of tick {tick}")
        try:
            return raw_journal(self._base, tick)
        except CorruptState:
            self.damaged.add(tick)
            return b""


def _traces_in(raw: bytes) -> Traces:
    lines = raw.split(b"\n")
    named: set[bytes] = set()
    tools: set[tuple[str, str]] = set()
    for line in lines:
        if line.startswith(_NAMES_FILES):
            named.update(path for path in _PATH.findall(line) if b"/outbox/" not in path)
            for ahead in _AHEAD.finditer(line):
                named.update(_STRINGS.findall(ahead[1]))
        elif line.startswith(_TOOL_STARTED):
            tools.add(_tool_in(line))
    return Traces(frozenset(named), frozenset(tools), holds_together(lines))


def _tool_in(line: bytes) -> tuple[str, str]:
    try:
        plain = parse(line)
        return str(plain["agent"]), str(plain["tool"])
    except (JsonProblem, KeyError, TypeError):  # of a line that is not whole
        return "", ""
