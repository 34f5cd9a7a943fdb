"""Cron schedules, as the engine knows them: what is due by one, and what its agent is told of that."""

from __future__ import annotations

from datetime import timedelta

from lemming.capabilities.cron.expressions import MOST_COUNTED, Due, due_between
from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.base.times.words import moment_in_words
from lemming.kernel.org.schedule import AgentSchedule
from lemming.kernel.tick.first_readings import find_first_reading
from lemming.kernel.turn.seams import Capability, Moment, Preparation, Showing
from lemming.kernel.turn.seen import Seen


class Cron(Capability):
    """Turns by the clock: `schedule.cron` of a resume."""

    name = "cron"

    def prepare(self, moment: Moment) -> Preparation:
        """Return what the agent is told as its turn begins."""
        return CronPreparation(moment)


class CronPreparation(Preparation):
    """Tells an agent that it is due by its schedule, and for how many moments its turn stands."""

    def annotates(self, seen: Seen, shown: Showing) -> None:
        """Have the prompt say which moments are due."""
        now = self.moment.now
        agent, zone_name = self.moment.agent, now.config.org.timezone
        text = schedule_text(agent.schedule, zone_name)
        since = find_first_reading(now.org, agent.name, text, now.since, now.at)
        if due := due_by_clock(agent.schedule, zone_name, since, now.at):
            seen.time = [*seen.time, due_text(due)]


def due_by_clock(schedule: AgentSchedule, org_zone: str | None, since: str, at: str) -> Due | None:
    """Return the moments of a cron schedule that a tick with these readings has to see to; None: none.

    Where there is no reading before, nothing is due yet: a new schedule makes up for nothing.
    """
    zone_name = schedule.timezone or org_zone
    # a reading that is no later: the clock was put back, and nothing is due twice
    if schedule.cron is None or zone_name is None or not since or since >= at:
        return None
    grace = timedelta(minutes=schedule.grace_minutes) if schedule.missed == "skip" else None
    return due_between(schedule.cron, zone_name, parse_timestamp(since), parse_timestamp(at), grace=grace)


def schedule_text(schedule: AgentSchedule, org_zone: str | None) -> str:
    """Return the expression and time zone of a schedule: a change of either makes it another."""
    return f"{schedule.cron} {schedule.timezone or org_zone}"


def due_text(due: Due) -> str:
    """Return what an agent is told that is due by its cron schedule."""
    if due.times == 1:
        return f"You are due by your schedule: {moment_in_words(due.first)}."
    more = " or more" if due.times == MOST_COUNTED else ""
    return (
        f"You are due by your schedule {due.times} times{more} since {moment_in_words(due.first)}; "
        "this one turn stands for all of them."
    )
