"""Index of the turns that wrote each file, searched from the newest journal backwards; only cached in memory.

An entry's name contains its tick, an agent's ledger the ticks of its turns, and plans the arrival of agents.
For all other files the journals are scanned, only as far back as necessary.
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

from lemming.journal_tools.missing_journals import find_lost_ticks
from lemming.journal_tools.recorded_tick import RecordedTick, TurnRecord, load_tick_record
from lemming.kernel.agents import list_agent_folders
from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState, UsageError
from lemming.kernel.base.integers import LAST_TICK
from lemming.kernel.base.jsontext import JsonProblem, dump_compact, parse
from lemming.kernel.base.turn_numbers import split_key
from lemming.kernel.files import fs
from lemming.kernel.journal.checksums import is_chain_intact
from lemming.kernel.journal.journal_file import journal_ticks, load_plan, make_prompt_reader, raw_journal
from lemming.kernel.journal.ledger import recorded_ticks
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.firing_plan import TickPlan

TurnPosition = tuple[int, int]
"""A tick, and a position in its order. A turn sees everything written before."""

MAX_TICKS_CACHED = 64
MAX_LOST_TICKS_NAMED = 5


@dataclass(frozen=True)
class FileWrite:
    """A write of a file with this content (SHA-256) in a turn."""

    position: TurnPosition
    agent: str
    path: str
    digest: str
    key: str
    """Key that distinguishes the turn from others of its tick."""


@dataclass
class _TickIndex:
    """The index of a tick; `previous_tick` is the newest earlier tick with a journal."""

    writes: dict[str, list[FileWrite]] = field(default_factory=dict)
    expired: frozenset[str] = frozenset()
    removed: dict[str, str] = field(default_factory=dict)
    persons: frozenset[str] = frozenset()
    previous_tick: int | None = None


class WriteLog:
    """The file writes in the turns of an organisation. `damaged`: ticks with unreadable journals."""

    def __init__(self, base: OrgPath, progress: Callable[[str], object] = str) -> None:
        self.base = base
        self._search = JournalSearch(base, progress)
        self.damaged = self._search.damaged
        self._ticks, self._prompts = journal_ticks(base), make_prompt_reader(base)
        self._index: dict[int, _TickIndex] = {}
        self._in_ledger = cache(partial(recorded_ticks, base))
        self._creation = cache(self._find_creation)
        self.tick = lru_cache(MAX_TICKS_CACHED)(self._load_tick)

    def find_turn(self, tick: int, key: str) -> TurnRecord | None:
        """Return a turn, or None if no readable journal contains it."""
        record = self.tick(tick)
        try:
            return record.find_turn(key) if record else None
        except CorruptState:  # the prompt is no longer stored
            self.damaged.add(tick)
            return None

    def find_last_write(
        self, path: str, *, position: TurnPosition | None = None, exhaustive: bool = False
    ) -> FileWrite | None:
        """Return the newest write of a file, optionally before a position, or None if no turn wrote the file.

        If the path names the agent, the agent's ledger limits the search to the ticks of its turns.
        `exhaustive`: scan all journals instead.
        """
        until = position[0] if position else LAST_TICK
        for tick in self._iter_ticks(path, until) if exhaustive else self._iter_likely_ticks(path, until):
            for write in reversed(self._get_tick_index(tick).writes.get(path, ())):
                if position is None or write.position < position:
                    return write
        return None

    def _iter_likely_ticks(self, path: str, until: int) -> Iterator[int]:
        """Yield the ticks that may have written a file, newest first."""
        agent, folder, name = _split_agent_path(path)
        if folder == "outbox" and (match := paths.ENTRY_FILE.match(name)):
            yield from [tick for tick in [int(match[1])] if tick <= until and self._has_journal(tick)]
        elif name == "resume.json" and not folder and agent:
            first = min([tick for tick in self._in_ledger(agent) if tick <= until], default=until)
            yield from self._creation(agent, first)
        elif folder == "memory":
            own_ticks = [tick for tick in reversed(self._in_ledger(agent)) if tick <= until and self._has_journal(tick)]
            yield from (tick for tick in own_ticks if self._may_name(tick, path))
            yield from self._iter_ticks(path, until)
        else:
            yield from self._iter_ticks(path, until)

    def _iter_ticks(self, path: str, until: int) -> Iterator[int]:
        ticks = reversed(self._ticks[: bisect_right(self._ticks, until)])
        return (tick for tick in ticks if self._may_name(tick, path))

    def _find_creation(self, agent: str, first: int) -> list[int]:
        """Return the newest tick before `first` whose plan lacks the agent, while the next plan contains the agent.

        Only a turn of this tick can have created the agent. The agent existed during all ticks with its turns, of which
        `first` is the first.
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
        """Return True if the plan of a journal contains an agent; an unreadable plan counts as True."""
        try:
            first = load_plan(self.base, self._ticks[number])
        except CorruptState:
            self.damaged.add(self._ticks[number])
            return True
        return first is None or agent in TickPlan.from_record(first).all_agents

    def _has_journal(self, tick: int) -> bool:
        index = bisect_left(self._ticks, tick)
        return self._ticks[index : index + 1] == [tick]

    def find_write(self, tick: int, path: str) -> FileWrite | None:
        """Return the write of a file in a tick, or None."""
        return next(iter(self._get_tick_index(tick).writes.get(path, ())), None)

    def load_content(self, write: FileWrite) -> bytes:
        """Return the written content."""
        turn = self.find_turn(write.position[0], write.key)
        assert turn is not None  # the write was found in its record
        return turn.writes[write.path].content

    def find_external_tools(self, agent: str, tick: int) -> list[str]:
        """Return the tools with side effects that an agent has used since a tick, inclusive."""
        since = self._ticks[bisect_left(self._ticks, tick) :]
        return sorted(
            {
                tool
                for journal_tick in since
                for user, tool in self._search.find_traces(journal_tick).tools
                if user == agent
            }
        )

    def find_expiry_tick(self, path: str) -> int | None:
        """Return the tick in which retention removed an entry, or None."""
        match = paths.ENTRY_FILE.match(path.rpartition("/")[2])
        since = self._ticks[bisect_left(self._ticks, int(match[1])) :] if match else []
        named = (tick for tick in since if self._search.has_text(tick, path))
        return next((tick for tick in named if path in self._get_tick_index(tick).expired), None)

    def find_removal(self, path: str, since_tick: int) -> tuple[str, int] | None:
        """Return the agent that removed a file since a tick, and the tick of the removal, or None."""
        since = self._ticks[bisect_left(self._ticks, since_tick) :]
        named = (tick for tick in since if self._search.has_text(tick, path))
        removals = (
            (self._get_tick_index(tick).removed[path], tick)
            for tick in named
            if path in self._get_tick_index(tick).removed
        )
        return next(removals, None)

    def list_lost_ticks(self, *, after_tick: int = 0, before_tick: int | None = None) -> str:
        """Return the ticks with missing or unreadable journals as text, or an empty string.

        `after_tick` and `before_tick` are excluded. Without `before_tick`, the range ends with the newest journal.
        """
        end = (self._ticks[-1] + 1 if self._ticks else 0) if before_tick is None else before_tick
        named = list(
            islice(
                (tick for tick in self._iter_lost_ticks(after_tick, end) if after_tick < tick < end),
                MAX_LOST_TICKS_NAMED + 1,
            )
        )
        suffix = " and others" if len(named) > MAX_LOST_TICKS_NAMED else ""
        return ", ".join(map(str, named[:MAX_LOST_TICKS_NAMED])) + suffix

    def _iter_lost_ticks(self, after_tick: int, end: int) -> Iterator[int]:
        """Yield the ticks in and around a range with missing or unreadable journals, without quiet ticks."""
        for previous, tick in zip([None, *self._ticks], self._ticks, strict=False):
            if tick > after_tick and (previous is None or previous < end):
                if previous is None or previous + 1 < tick:
                    yield from find_lost_ticks(previous, self._get_tick_index(tick).previous_tick)
                if not self._search.find_traces(tick).is_whole or tick in self.damaged:
                    yield tick

    def is_person(self, agent: str, tick: int) -> bool:
        """Return True if the tick's plan assigns the agent to a person."""
        return agent in self._get_tick_index(tick).persons

    def find_entry_path(self, identity: str) -> str | None:
        """Return the path of an entry that exists or was written in a turn, or None for an unknown id."""
        if identity in self._entry_paths:
            return self._entry_paths[identity]
        end = f"_{identity}.json"
        named = (tick for tick in reversed(self._ticks) if self._search.has_text(tick, end))
        return next((path for tick in named for path in self._get_tick_index(tick).writes if path.endswith(end)), None)

    @cached_property
    def _entry_paths(self) -> dict[str, str]:
        """The paths of existing entries, by id; for a duplicate id, the first path."""
        paths_by_id: dict[str, str] = {}
        for author in filter(paths.AGENT_NAME.match, list_agent_folders(self.base)):
            folder = paths.outbox_folder(author)
            with contextlib.suppress(OSError):
                for file in fs.list_names(f"{self.base}/{folder}"):
                    if match := paths.ENTRY_FILE.match(file):
                        paths_by_id.setdefault(match[2], f"{folder}/{file}")
        return paths_by_id

    def _load_tick(self, tick: int) -> RecordedTick | None:
        try:
            return load_tick_record(self.base, tick, self._prompts)
        except UsageError:  # no journal
            return None
        except CorruptState:
            self.damaged.add(tick)
            return None

    def _may_name(self, tick: int, path: str) -> bool:
        return tick in self._index or self._search.has_write(tick, path)

    def _get_tick_index(self, tick: int) -> _TickIndex:
        if tick not in self._index:
            self._index[tick] = self._build_tick_index(tick)
        return self._index[tick]

    def _build_tick_index(self, tick: int) -> _TickIndex:
        record = self.tick(tick)
        return _index_tick(record) if record else _TickIndex()


def _split_agent_path(path: str) -> tuple[str, str, str]:
    """Return the agent, the folder and the file name of an agent's own file, or empty strings for other files."""
    parts = path.split("/")
    if parts[0] == "agents" and len(parts) in (3, 4) and paths.AGENT_NAME.match(parts[1]):
        return parts[1], parts[2] if len(parts) == 4 else "", parts[-1]
    return "", "", ""


def _index_tick(record: RecordedTick) -> _TickIndex:
    index = _TickIndex(
        expired=frozenset(record.expired), persons=record.people, previous_tick=record.start_record.after
    )
    for ended in record.ended.values():
        index.removed.update(dict.fromkeys(ended.report.removed, ended.agent_name))
    for rank, key in enumerate(record.turn_keys):
        for path, digest in _iter_written_files(record, key):
            write = FileWrite((record.tick, rank), split_key(key)[0], path, digest, key)
            index.writes.setdefault(path, []).append(write)
    return index


def _iter_written_files(record: RecordedTick, key: str) -> Iterator[tuple[str, str]]:
    """Yield the files a turn wrote, with their digests; an unfinished turn has written none."""
    ended = record.ended.get(key)
    if ended is None:
        return
    if ended.report.written_ahead:  # their content is only in the complete turn
        turn = record.find_turn(key)
        yield from ((path, effect.digest) for path, effect in (turn.writes if turn else {}).items())
    else:
        yield from ((file["path"], file["sha256"]) for file in ended.report.files)


# --- tests on the bytes of journals ---------------------------------------------------------------
# Parsing a journal costs twenty times as much as searching its bytes, so only journals whose bytes contain the
# name are parsed.


_STRING = rb'"((?:[^"\\]|\\.)*)"'
_PATH = re.compile(rb'"path":' + _STRING)
_AHEAD = re.compile(rb'"written_ahead":\[((?:' + _STRING + rb",?)*)\]")
_STRINGS = re.compile(_STRING)
_NAMES_FILES = (b'{"type":"turn_committed"', b'{"type":"tool_finished"')
_TOOL_STARTED = b'{"type":"tool_started"'


class JournalTraces(NamedTuple):
    """The facts found in a journal's bytes: contained paths, in JSON form, and started tools with their
    agents.

    Entries are omitted, because their names contain the tick. `is_whole`: the checksum chain is complete.
    """

    paths: frozenset[bytes] = frozenset()
    tools: frozenset[tuple[str, str]] = frozenset()
    is_whole: bool = True


class JournalSearch:
    """Scans journals, each once. `damaged`: ticks of incomplete journals found so far."""

    def __init__(self, base: OrgPath, progress: Callable[[str], object]) -> None:
        self._base, self._progress = base, progress
        self._traces: dict[int, JournalTraces] = {}
        self.damaged: set[int] = set()

    def has_write(self, tick: int, path: str) -> bool:
        """Return True if a journal records a write of a file other than an entry."""
        return dump_compact(path)[1:-1] in self.find_traces(tick).paths

    def has_text(self, tick: int, text: str) -> bool:
        """Return True if a journal contains a text anywhere."""
        return text.encode() in self._load_raw(tick)

    def find_traces(self, tick: int) -> JournalTraces:
        """Return the traces in a journal's bytes; empty for an unreadable journal."""
        if tick not in self._traces:
            self._traces[tick] = traces = _extract_traces(self._load_raw(tick))
            if not traces.is_whole:
                self.damaged.add(tick)
        return self._traces[tick]

    def _load_raw(self, tick: int) -> bytes:
        self._progress(f"the journal of tick {tick}")
        try:
            return raw_journal(self._base, tick)
        except CorruptState:
            self.damaged.add(tick)
            return b""


def _extract_traces(raw: bytes) -> JournalTraces:
    lines = raw.split(b"\n")
    written_paths: set[bytes] = set()
    tools: set[tuple[str, str]] = set()
    for line in lines:
        if line.startswith(_NAMES_FILES):
            written_paths.update(path for path in _PATH.findall(line) if b"/outbox/" not in path)
            for early_writes in _AHEAD.finditer(line):
                written_paths.update(_STRINGS.findall(early_writes[1]))
        elif line.startswith(_TOOL_STARTED):
            tools.add(_parse_tool_line(line))
    return JournalTraces(frozenset(written_paths), frozenset(tools), is_chain_intact(lines))


def _parse_tool_line(line: bytes) -> tuple[str, str]:
    try:
        plain = parse(line)
        return str(plain["agent"]), str(plain["tool"])
    except (JsonProblem, KeyError, TypeError):  # of a line that is not whole
        return "", ""
