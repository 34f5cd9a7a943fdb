"""Calendar in a tick: clock agents take a turn only with due jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from lemming.capabilities.calendars.calendar_file import CalendarJob
from lemming.capabilities.calendars.calendar_jobs import (
    JobSchedule,
    find_due_jobs,
    get_job_schedule,
    schedule_name,
    schedule_text,
)
from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.tick.tick_hooks import TickInterceptor, TickView, UpcomingEvent


class CalendarTickInterceptor(TickInterceptor):
    """Skips the clock agents, except for the first by name if jobs are due."""

    uses_clock = True

    def schedules(self, view: TickView) -> Mapping[str, str]:
        """Return the schedule of each job. Raises `ConfigError` for an invalid calendar."""
        jobs, zone_name = get_job_schedule(view).jobs, view.config.org.timezone
        return {schedule_name(name): schedule_text(job, zone_name) for name, job in jobs.items() if job.cron}

    def skipped_agents(self, view: TickView) -> Mapping[str, str]:
        """Return the clock agents without due jobs. Raises `ConfigError` for an invalid calendar."""
        skipped = dict.fromkeys(self.agents, "")
        if find_due_jobs(view):
            del skipped[min(skipped)]
        return skipped

    def upcoming_events(self, view: TickView, start: datetime) -> Iterator[Iterator[UpcomingEvent]]:
        """Yield the upcoming events of each job. Raises `ConfigError` for an invalid calendar."""
        jobs = get_job_schedule(view)
        yield from (_upcoming_events(jobs, name, job, start) for name, job in jobs.jobs.items() if not job.paused)


def _upcoming_events(jobs: JobSchedule, name: str, job: CalendarJob, start: datetime) -> Iterator[UpcomingEvent]:
    since = jobs.find_first_reading(name, job)
    for time in jobs.next_occurrences(job, max(start, parse_timestamp(since)) if since else start):
        yield UpcomingEvent(time, job.agent, f"job {name}: {job.text}")
