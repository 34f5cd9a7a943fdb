"""The calendar in a tick: those whose brain is the clock have a turn where there is something to ask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from lemming.capabilities.calendars.calendar import Job
from lemming.capabilities.calendars.jobs import Jobs, jobs_due, jobs_in, schedule_name, schedule_text
from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.tick.seams import Coming, TickLook, TickPart


class CalendarInTicks(TickPart):
    """Its agents are those whose brain is the clock; the first by name asks for what is due."""

    by_clock = True

    def schedules(self, look: TickLook) -> Mapping[str, str]:
        """Return the schedule of each job; raise `ConfigError` for a calendar that is none."""
        jobs, zone_name = jobs_in(look).jobs, look.config.org.timezone
        return {schedule_name(name): schedule_text(job, zone_name) for name, job in jobs.items() if job.cron}

    def rests(self, look: TickLook) -> Mapping[str, str]:
        """Return those that have nothing to ask; raise `ConfigError` for a calendar that is none."""
        resting = dict.fromkeys(self.agents, "")
        if jobs_due(look):
            del resting[min(resting)]
        return resting

    def comes(self, look: TickLook, after: datetime) -> Iterator[Iterator[Coming]]:
        """Yield what each job comes to; raise `ConfigError` for a calendar that is none."""
        jobs = jobs_in(look)
        yield from (_moments(jobs, name, job, after) for name, job in jobs.jobs.items() if not job.paused)


def _moments(jobs: Jobs, name: str, job: Job, after: datetime) -> Iterator[Coming]:
    since = jobs.find_first_reading(name, job)
    for at in jobs.occurrences(job, max(after, parse_timestamp(since)) if since else after):
        yield Coming(at, job.agent, f"job {name}: {job.text}")
