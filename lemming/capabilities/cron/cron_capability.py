"""Cron schedules as a capability of the engine: due times, and their description for the agent."""

from __future__ import annotations

from datetime import timedelta

from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.base.times.format_times import format_moment
from lemming.kernel.org.schedule import AgentSchedule
from lemming.kernel.tick.first_clock_readings import find_first_reading
from lemming.kernel.turn.preparation import Preparation
from lemming.kernel.turn.preparation_effects import BuildPrompt
from lemming.kernel.turn.turn_effects import Interception
from lemming.kernel.turn.turn_hooks import Capability
from lemming.libraries.cron_expressions import MAX_COUNTED, DueTimes, find_due_times


class CronCapability(Capability):
    """Scheduled turns: `schedule.cron` of a resume."""

    name = "cron"

    handles = (BuildPrompt,)

    def intercept(self, effect: BuildPrompt, turn: Preparation) -> Interception:
        """Tell the agent the due times of its schedule."""
        tick_context, zone_name = turn.context.tick_context, turn.context.tick_context.config.org.timezone
        schedule = turn.agent.schedule
        text = schedule_text(schedule, zone_name)
        since = find_first_reading(turn.org, turn.agent.name, text, tick_context.since, turn.at)
        if due := find_schedule_due_times(schedule, zone_name, since, turn.at):
            return (yield effect.change(time=[*effect.prompt.time, describe_due_times(due)]))
        return None


def find_schedule_due_times(schedule: AgentSchedule, org_zone: str | None, since: str, at: str) -> DueTimes | None:
    """Return the due times of a cron schedule between two clock times, or None.

    Without an earlier clock time nothing is due: a new schedule has no missed turns.
    """
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
