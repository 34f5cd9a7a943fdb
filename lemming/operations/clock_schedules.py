"""Clock schedules of capabilities: upcoming events, and the record of the schedules at each tick."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import tee
from typing import TYPE_CHECKING, Any

from lemming.kernel.base import paths
from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.tick.error_boundary import isolate
from lemming.kernel.tick.tick_hooks import (
    CapabilityUse,
    KnownSchedules,
    find_current_reading,
    load_known_schedules,
    uses_clock,
)

if TYPE_CHECKING:
    from lemming.kernel.tick.snapshot import Snapshot
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


def record_schedules(snapshot: Snapshot) -> None:
    """Record the current schedules at a tick's reading, so the next tick recognises new ones.

    Nothing is written without changes. Schedules of broken agents keep the recorded values.
    """
    org, since, at = snapshot.org, snapshot.since, snapshot.at
    if not uses_clock(snapshot.capability_uses):
        return
    schedules = isolate(lambda: _collect_schedules(snapshot))
    if isinstance(schedules, Exception):  # some are unreadable
        return
    known_schedules = load_known_schedules(org)
    previous_schedules: KnownSchedules = known_schedules or {}
    first = (
        at if known_schedules is not None or not since else ""
    )  # schedules recorded by an earlier version are not new
    current_schedules = {
        name: reading for name, reading in previous_schedules.items() if name in snapshot.survey.broken
    }
    for name, schedule in schedules.items():
        current_schedules[name] = (
            previous_schedules[name] if previous_schedules.get(name, ("",))[0] == schedule else (schedule, first)
        )
    if current_schedules != previous_schedules:
        raw_schedules = {
            name: {"schedule": reading[0], "since": reading[1]} for name, reading in sorted(current_schedules.items())
        }
        fs.write_atomic(org.base, paths.SCHEDULES_FILE, dump_pretty(raw_schedules))


def _collect_schedules(snapshot: Snapshot) -> dict[str, str]:
    schedules = (item for use in snapshot.capability_uses for item in use.list_schedules(snapshot.view))
    return {schedule.name: schedule.text for schedule in schedules if schedule.text}
