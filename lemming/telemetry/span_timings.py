"""Start and end of each step of a turn, and the ids of spans.

Times are milliseconds since 1970. An answer has its arrival time and duration, a tool call its duration. A step without
a time follows the previous step. An answer from a recording has the time of the original answer, but counts at its use.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.journal.journal_records import (
    ModelFailed,
    ModelReplied,
    Record,
    TickStarted,
    ToolFinished,
    ToolStarted,
)

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


def make_trace_id(plan: TickStarted) -> bytes:
    """Return a globally unique trace id of a tick, derived from the first record of its journal.

    The record holds the time and the machine's uptime. A copy of an organisation, and a fork up to its fork
    point, therefore have the same ids; other ticks of the same number have different ids.
    """
    return blake2b(dump_compact(plan.as_json()), digest_size=16).digest()


def make_span_id(trace: bytes, *parts: object) -> bytes:
    """Return the span id of a step of a tick."""
    return blake2b("/".join(map(str, parts)).encode(), key=trace, digest_size=8).digest()
