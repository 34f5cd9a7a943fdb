"""Due jobs of the calendar and their history, as a view over the requests made for the jobs.

A job's request names the job (`payload.job`) and the due time (`payload.due`); nothing else is stored. Rules:
docs/settings.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple

from lemming.capabilities.calendars.calendar_file import CalendarJob, find_calendar_agent, load_calendar
from lemming.ext import TickView, find_first_reading
from lemming.kernel.agents import Survey, list_agent_folders
from lemming.kernel.base.clock import parse_timestamp, timestamp
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.cron_expressions import DueTimes, find_due_times, iter_occurrences
from lemming.obligations.current_requests import RequestEntryIndex
from lemming.obligations.request_outcome import build_requests
from lemming.obligations.request_view import RequestView

MAX_UPCOMING = 200


class DueJob(NamedTuple):
    """A due job. `due`: the last due time. `times`: number of due times for one request."""

    name: str
    job: CalendarJob
    due: str
    times: int = 1

    @property
    def payload(self) -> dict[str, Any]:
        """Payload of the request."""
        job = self.job
        extra: dict[str, Any] = {"times": self.times} if self.times > 1 else {}
        if job.deadline is not None:
            extra["deadline"] = job.deadline
        return {"text": job.text, "target": job.agent, **job.payload, "job": self.name, "due": self.due, **extra}


class JobSchedule:
    """Jobs of an organisation in a tick, for the agent that sends them."""

    def __init__(
        self,
        org: Organisation,
        survey: Survey,
        config: Config,
        *,
        people: Iterable[str],
        tick: int,
        since: str,
        at: str,
    ) -> None:
        self._org, self._survey, self._config, self._tick = org, survey, config, tick
        self._people, self._since, self._at = people, since, at
        self.calendar = load_calendar(org)
        self.jobs = self.calendar.jobs
        self._latest_requests: Mapping[str, RequestView] | None = None

    def due_jobs(self) -> list[DueJob]:
        """Return the due jobs in the order of the calendar."""
        candidates = (self.find_due_job(name, job) for name, job in self.jobs.items())
        return [job for job in candidates if job is not None]

    def find_due_job(self, name: str, job: CalendarJob) -> DueJob | None:
        """Return a job if it is due, or None."""
        if not self._at or job.paused or not (job.agent in self._survey.agents or job.agent in self._survey.broken):
            return None
        due_times = self.find_due_times(job, self.find_first_reading(name, job), self._at) if self._since else None
        if due_times is None:
            return None
        if job.overlap == "skip" and (latest := self.get_latest_request(name)) is not None and latest.is_open:
            return None
        return DueJob(name, job, timestamp(due_times.last), due_times.times)

    def find_first_reading(self, name: str, job: CalendarJob) -> str:
        """Return the clock time after which a job's due times count."""
        text = schedule_text(job, self._config.org.timezone)
        return find_first_reading(self._org, schedule_name(name), text, self._since, self._at)

    def find_due_times(self, job: CalendarJob, since: str, until: str) -> DueTimes | None:
        """Return the due times of a job in an interval, without holidays, or None."""
        zone_name = job.timezone or self._config.org.timezone
        if zone_name is None or since >= until:
            return None
        return find_due_times(
            job.cron,
            zone_name,
            parse_timestamp(since),
            parse_timestamp(until),
            grace=timedelta(minutes=job.grace_minutes) if job.missed == "skip" else None,
            counts=lambda time: job.on_holidays or not self.is_holiday(time),
        )

    def next_occurrences(self, job: CalendarJob, start: datetime) -> Iterator[datetime]:
        """Yield the next due times of a job after `start`, without holidays."""
        zone_name = job.timezone or self._config.org.timezone
        if zone_name is None:
            return
        for time in islice(iter_occurrences(job.cron, zone_name, start), MAX_UPCOMING):
            if job.on_holidays or not self.is_holiday(time):
                yield time

    def is_holiday(self, time: datetime) -> bool:
        """Return True if a time falls on a holiday in the time zone of the schedule."""
        return f"{time:%Y-%m-%d}" in self.calendar.holidays or f"{time:%m-%d}" in self.calendar.holidays

    def get_latest_request(self, name: str) -> RequestView | None:
        """Return the latest request of a job before this tick, or None."""
        if self._latest_requests is None:
            asker = find_calendar_agent(self._survey.agents, self._config)
            self._latest_requests = {
                job: request
                for request in self._job_requests()
                if request.asker == asker and isinstance(job := request.entry.payload.get("job"), str)
            }
        return self._latest_requests.get(name)

    def _job_requests(self) -> Iterator[RequestView]:
        survey = self._survey
        entries = self._org.get_cache(RequestEntryIndex).refresh(list_agent_folders(self._org.base), decides=True)
        # not the file as this tick has changed it: an interrupted tick must compute the same jobs
        earlier_entries = {name: entry for name, entry in entries.items() if name.tick < self._tick}
        yield from build_requests(
            earlier_entries,
            agents=survey.agents,
            people=self._people,
            order=survey.turn_order,
            tick=self._tick,
            broken=survey.broken,
        )


def schedule_name(job_name: str) -> str:
    """Return the name of a job's schedule, different from every agent's name."""
    return f"job {job_name}"


def schedule_text(job: CalendarJob, org_zone: str | None) -> str:
    """Return the expression and time zone of a job's schedule. A change of either makes a new schedule."""
    return f"{job.cron} {job.timezone or org_zone}"


def find_due_jobs(view: TickView) -> list[DueJob]:
    """Return the due jobs of a tick."""
    return get_job_schedule(view).due_jobs()


def get_job_schedule(view: TickView) -> JobSchedule:
    """Return the job schedule of an organisation in a tick."""
    people = view.survey.find_people(view.config)
    return JobSchedule(view.org, view.survey, view.config, people=people, tick=view.tick, since=view.since, at=view.at)
