"""When each step of a turn began and ended, in milliseconds since 1970, as far as its journal tells.

An answer has the time at which it came and how long it took, a call of a tool how long it took. What has no
time of its own follows what came before. An answer from a record has the time of when it was first given: it
stands where it was used. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.journal.records import ModelFailed, ModelReplied, Record, ToolFinished, ToolStarted

ROUNDING_MS = 20
"""By so much the two clocks of an answer, the time of day and how long it took, may disagree."""


class Lap(NamedTuple):
    """From when to when something lasted."""

    begin_ms: int
    end_ms: int


class Laps(NamedTuple):
    """A turn, its answers by the number of the call, and its calls of tools by their index."""

    turn: Lap
    calls: dict[int, Lap]
    tools: dict[int, Lap]


def moment_ms(text: str) -> int:
    """Return a timestamp in milliseconds since 1970; 0 for what is none."""
    try:
        return round(parse_timestamp(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0


def laps_of(records: Iterable[Record], tick_began_ms: int) -> Laps:
    """Return when the steps of a turn were; they follow each other, and none begins before the tick."""
    calls: dict[int, Lap] = {}
    tools: dict[int, Lap] = {}
    now = tick_began_ms
    for record in records:
        match record:
            case ModelReplied(call=number, duration_ms=took):
                began = moment_ms(record.at) - max(took, 0)
                begin = max(now, began) if began >= now - ROUNDING_MS else now
                calls[number] = Lap(begin, begin + max(took, 0))
                now = calls[number].end_ms
            case ModelFailed(call=number, duration_ms=took):
                calls[number] = Lap(now, now + took)
                now += took
            case ToolStarted(index=index):
                tools[index] = Lap(now, now)
            case ToolFinished(index=index, duration_ms=took):
                tools[index] = Lap(now, now + took)
                now += took
    steps = [*calls.values(), *tools.values()]
    return Laps(Lap(min((lap.begin_ms for lap in steps), default=now), now), calls, tools)
