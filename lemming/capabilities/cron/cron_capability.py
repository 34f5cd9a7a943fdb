"""Cron schedules as a capability of the engine: due times, and their description for the agent."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import cache, partial

from lemming.ext import (
    BuildPrompt,
    Capability,
    ClockSchedule,
    DescribeQuery,
    Interception,
    Preparation,
    ScheduleQuery,
    TickView,
    find_first_reading,
)
from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.org.schedule import AgentSchedule
from lemming.libraries.cron_expressions import MAX_COUNTED, DueTimes, find_due_times, iter_occurrences
from lemming.libraries.everyday_times import format_moment


class CronCapability(Capability):
    """Scheduled turns: `schedule.cron` of a resume."""

    name = "cron"
    handles = (BuildPrompt,)
    describes = (ClockSchedule,)

    def intercept(self, effect: BuildPrompt, turn: Preparation) -> Interception:
        """Tell the agent the due times of its schedule."""
        tick_context, zone_name = turn.context.tick_context, turn.context.tick_context.config.org.timezone
        schedule = turn.agent.schedule
        text = schedule_text(schedule, zone_name)
        since = find_first_reading(turn.org, turn.agent.name, text, tick_context.since, turn.at)
        if due := find_schedule_due_times(schedule, zone_name, since, turn.at):
            return (yield effect.change(time=[*effect.prompt.time, describe_due_times(due)]))
        return None

    def describe(self, query: DescribeQuery) -> Iterator[ClockSchedule]:
        """Yield the schedule of each agent."""
        if isinstance(query, ScheduleQuery):
            yield from list_cron_schedules(query.tick)


def find_schedule_due_times(schedule: AgentSchedule, org_zone: str | None, since: str, at: str) -> DueTimes | None:
    """Return a cron schedule's due times between two clock times, or None. Without the earlier time, none is due."""
    zone_name = schedule.timezone or org_zone
    # a reading that is no later: the clock was put back, and nothing is due twice
    if schedule.cron is None or zone_name is None or not since or since >= at:
        return None
    grace = timedelta(minutes=schedule.grace_minutes) if schedule.missed == "skip" else None
    return find_due_times(schedule.cron, zone_name, parse_timestamp(since), parse_timestamp(at), grace=grace)


def schedule_text(schedule: AgentSchedule, org_zone: str | None) -> str:
    """Return the expression and time zone of a schedule. A change of either makes a new schedule."""
    return f"{schedule.cron} {schedule.timezone or org_zone}"


def describe_due_times(due: DueTimes) -> str:
    """Return the sentence about an agent's due times."""
    if due.times == 1:
        return f"You are due by your schedule: {format_moment(due.first)}."
    suffix = " or more" if due.times == MAX_COUNTED else ""
    return (
        f"You are due by your schedule {due.times} times{suffix} since {format_moment(due.first)}; "
        "this one turn stands for all of them."
    )


NO_ZONE = (
    'the cron expression requires a time zone (set "timezone" in the schedule, or for all agents in config/org.json)'
)


def list_cron_schedules(tick: TickView) -> Iterator[ClockSchedule]:
    """Yield the schedule of each agent, by name. Agents with the same schedule share its times."""
    groups: dict[AgentSchedule, list[str]] = {}
    for name in tick.agents:
        if agent := tick.survey.agents.get(name):
            groups.setdefault(agent.schedule, []).append(name)
    org_zone = tick.config.org.timezone
    for schedule, names in groups.items():
        text, error = schedule_text(schedule, org_zone), "" if schedule.timezone or org_zone else NO_ZONE
        is_due = cache(partial(_is_due, schedule, org_zone, tick.at))
        iter_times = partial(_iter_times, schedule, org_zone, tick.at)
        for name in names:
            yield ClockSchedule(name, name, text, f"a turn, cron {schedule.cron}", is_due, iter_times, error=error)


def _is_due(schedule: AgentSchedule, org_zone: str | None, at: str, since: str) -> bool:
    return find_schedule_due_times(schedule, org_zone, since, at) is not None


def _iter_times(schedule: AgentSchedule, org_zone: str | None, at: str, start: datetime) -> Iterator[datetime]:
    """Return the times of a schedule, including missed ones that are not too old."""
    zone_name = schedule.timezone or org_zone
    if not schedule.cron or not zone_name:
        return iter(())
    earliest = parse_timestamp(at) - timedelta(minutes=schedule.grace_minutes) if schedule.missed == "skip" else start
    return iter_occurrences(schedule.cron, zone_name, max(start, earliest))
