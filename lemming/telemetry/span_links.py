"""Start and end of each step of a turn, and links to the turns that wrote its inputs.

Times are milliseconds since 1970. An answer has its arrival time and duration, a tool call its duration. A step without
a time follows the previous step. An answer from a recording has the time of the original answer, but counts at its use.
Entry ids identify author and tick.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from lemming.journal_tools.recorded_tick import TurnRecord
from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.base.errors import CorruptState
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.journal.journal_file import load_plan
from lemming.kernel.journal.journal_records import (
    ModelFailed,
    ModelReplied,
    Record,
    TickStarted,
    ToolFinished,
    ToolStarted,
)
from lemming.kernel.messages import entry_id
from lemming.kernel.org.organisation import OrgPath

ROUNDING_MS = 20
"""By so much the two clocks of an answer, the time of day and how long it took, may disagree."""


class StepTiming(NamedTuple):
    """Start and end of a step."""

    begin_ms: int
    end_ms: int


class TurnTimings(NamedTuple):
    """Timing of a turn, of its answers by call number, and of its tool calls by index."""

    turn: StepTiming
    calls: dict[int, StepTiming]
    tools: dict[int, StepTiming]


def parse_timestamp_ms(text: str) -> int:
    """Return a timestamp in milliseconds since 1970, or 0 for an invalid timestamp."""
    try:
        return round(parse_timestamp(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0


def compute_timings(records: Iterable[Record], tick_began_ms: int) -> TurnTimings:
    """Return the timings of a turn's steps, in sequence and never before the start of the tick."""
    calls: dict[int, StepTiming] = {}
    tools: dict[int, StepTiming] = {}
    current_ms = tick_began_ms
    for record in records:
        match record:
            case ModelReplied(call=number, duration_ms=duration_ms):
                began = parse_timestamp_ms(record.at) - max(duration_ms, 0)
                begin = max(current_ms, began) if began >= current_ms - ROUNDING_MS else current_ms
                calls[number] = StepTiming(begin, begin + max(duration_ms, 0))
                current_ms = calls[number].end_ms
            case ModelFailed(call=number, duration_ms=duration_ms):
                calls[number] = StepTiming(current_ms, current_ms + duration_ms)
                current_ms += duration_ms
            case ToolStarted(index=index):
                tools[index] = StepTiming(current_ms, current_ms)
            case ToolFinished(index=index, duration_ms=duration_ms):
                tools[index] = StepTiming(current_ms, current_ms + duration_ms)
                current_ms += duration_ms
    steps = [*calls.values(), *tools.values()]
    return TurnTimings(StepTiming(min((lap.begin_ms for lap in steps), default=current_ms), current_ms), calls, tools)


MAX_TICKS_BACK = 32
"""Number of ticks whose entries are known by id; older ones are rarely news."""

MAX_ENTRIES_PER_TURN = 8
"""Maximum entries of each turn."""


def make_trace_id(plan: TickStarted) -> bytes:
    """Return a globally unique trace id of a tick, derived from the first record of its journal.

    The record holds the time and the machine's uptime. A copy of an organisation, and a fork up to its fork
    point, therefore have the same ids; other ticks of the same number have different ids.
    """
    return blake2b(dump_compact(plan.as_json()), digest_size=16).digest()


def make_span_id(trace: bytes, *parts: object) -> bytes:
    """Return the span id of a step of a tick."""
    return blake2b("/".join(map(str, parts)).encode(), key=trace, digest_size=8).digest()


class SpanLinkFinder:
    """Finds the turns that wrote entries. Consecutive ticks are read only once."""

    def __init__(self, base: OrgPath) -> None:
        self._base, self._latest = base, -1
        self._plan = lru_cache(2 * MAX_TICKS_BACK)(self._load_plan)
        self._authors_of = lru_cache(2 * MAX_TICKS_BACK)(self._derive_authors)

    def begin_tick(self, tick: int) -> None:
        """Begin a tick; clear the caches if the tick number goes back, as after a rewind."""
        if tick <= self._latest:
            self._plan.cache_clear()
            self._authors_of.cache_clear()
        self._latest = tick

    def find_links(self, turn: TurnRecord) -> Iterator[tuple[bytes, bytes]]:
        """Yield trace id and span id of each turn that wrote new entries shown in a turn, each once."""
        missing, authors_by_tick = set(turn.visible_entry_ids), set[tuple[int, str]]()
        for tick in range(turn.tick, max(-1, turn.tick - MAX_TICKS_BACK), -1):
            if not missing:
                break
            authors = self._authors_of(tick)
            matched = missing & authors.keys()
            missing -= matched
            authors_by_tick |= {(tick, authors[identity]) for identity in matched}
        for tick, author in sorted(authors_by_tick):
            plan = self._plan(tick)
            if plan is not None and author in plan.order and (tick, author) != (turn.tick, turn.agent):
                trace = make_trace_id(plan)
                yield trace, make_span_id(trace, author)

    def _derive_authors(self, tick: int) -> dict[str, str]:
        """Return the possible entry ids of a tick's turns, each with its author."""
        plan = self._plan(tick)
        order = plan.order if plan else ()
        return {entry_id(tick, author, index): author for author in order for index in range(MAX_ENTRIES_PER_TURN)}

    def _load_plan(self, tick: int) -> TickStarted | None:
        try:
            return load_plan(self._base, tick)
        except CorruptState:  # from another tick than the exported one: no link
            return None
