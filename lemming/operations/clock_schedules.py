"""Clock schedules of capabilities: upcoming events, and the record of the schedules at each tick."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import partial
from itertools import tee
from typing import TYPE_CHECKING, Any, NamedTuple

from lemming.kernel.base import paths
from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.tick.error_boundary import isolate
from lemming.kernel.tick.tick_hooks import (
    CapabilityUse,
    KnownSchedules,
    find_current_reading,
    get_capability_uses,
    load_known_schedules,
    uses_clock,
)

if TYPE_CHECKING:
    from lemming.kernel.tick_context import TickContext
    from lemming.kernel.turn.descriptions import ClockSchedule, TickView


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
            agent, description = schedule.concerns or schedule.agent, schedule.description
            yield map(partial(UpcomingEvent, agent=agent, description=description), times)


def record_schedules(tick_context: TickContext) -> None:
    """Record the current schedules at a tick's reading, so the next tick recognises new ones.

    Nothing is written without changes. Schedules of broken agents keep the recorded values.
    """
    org, since, at = tick_context.org, tick_context.since, tick_context.at
    uses = get_capability_uses(org, tick_context.survey, tick_context.config)
    if not uses_clock(uses):
        return
    from lemming.kernel.turn.descriptions import TickView  # most ticks use no clock

    view = TickView(org, tick_context.config, tick_context.survey, tick_context.tick, at, since)
    schedules = isolate(lambda: [item for use in uses for item in use.list_schedules(view)])
    if isinstance(schedules, Exception):  # some are unreadable
        return
    known_schedules = load_known_schedules(org)
    previous: KnownSchedules = known_schedules or {}
    # schedules recorded by an earlier version are not new
    first = at if known_schedules is not None or not since else ""
    current = {name: reading for name, reading in previous.items() if name in tick_context.survey.broken}
    for schedule in filter(lambda schedule: schedule.text, schedules):
        reading = previous.get(schedule.name)
        current[schedule.name] = reading if reading and reading[0] == schedule.text else (schedule.text, first)
    if current != previous:
        raw_schedules = {name: {"schedule": text, "since": start} for name, (text, start) in sorted(current.items())}
        fs.write_atomic(org.base, paths.SCHEDULES_FILE, dump_pretty(raw_schedules))


class UpcomingEvent(NamedTuple):
    """An upcoming event: time, agent and description."""

    at: datetime
    agent: str
    description: str
