"""Upcoming events of clock schedules."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import tee
from typing import TYPE_CHECKING, Any

from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.tick.tick_hooks import CapabilityUse, find_current_reading

if TYPE_CHECKING:
    from lemming.kernel.turn.descriptions import ClockSchedule, TickView, UpcomingEvent


def iter_upcoming(use: CapabilityUse, view: TickView, start: datetime) -> Iterator[Iterator[UpcomingEvent]]:
    """Yield an iterator per clock schedule of its events, earliest first. Raises `ConfigError`.

    The engine sleeps no longer than until the first event. Nothing is recorded.
    """
    groups: dict[tuple[Any, datetime], list[ClockSchedule]] = {}
    for schedule in use.list_schedules(view):
        since = find_current_reading(schedule, view)
        begin = max(start, parse_timestamp(since)) if since else start
        groups.setdefault((schedule.iter_times, begin), []).append(schedule)
    for (iter_times, begin), group in groups.items():  # times shared by many agents are computed once
        for schedule, times in zip(group, tee(iter_times(begin), len(group)), strict=True):
            yield _iter_events(schedule, times)


def _iter_events(schedule: ClockSchedule, times: Iterator[datetime]) -> Iterator[UpcomingEvent]:
    from lemming.kernel.turn.descriptions import UpcomingEvent

    return (UpcomingEvent(time, schedule.concerns or schedule.agent, schedule.description) for time in times)
