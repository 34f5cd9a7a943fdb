"""Due jobs of the calendar and their history, as a view over the requests made for the jobs.

A job's request names the job (`payload.job`) and the due time (`payload.due`); nothing else is stored. Rules:
docs/settings.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple

from lemming.capabilities.calendars.calendar_file import Calendar, CalendarJob, find_calendar_agent, load_calendar
from lemming.ext import TickView, find_first_reading
from lemming.kernel.agents import Survey, list_agent_folders
from lemming.kernel.base.clock import is_timestamp, parse_timestamp, timestamp
from lemming.kernel.base.times import zone_error
from lemming.kernel.files.json_documents import to_value
from lemming.kernel.memory import load_memories
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.cron_expressions import DueTimes, find_cron_error, find_due_times, iter_occurrences
from lemming.obligations.org_requests import RequestEntryIndex
from lemming.obligations.request_outcome import build_requests
from lemming.obligations.request_view import RequestView

TOOL, MEMORY = "keep_job", "calendar"
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


class JobHistory(NamedTuple):
    """History of a job: the latest request, and the latest answered request."""

    latest: RequestView | None = None
    answered: RequestView | None = None


def _iter_agent_jobs(org: Organisation, calendar: Calendar, survey: Survey) -> Iterator[tuple[str, CalendarJob]]:
    """Yield the valid jobs in the agents' memories as `agent.name`, of each agent up to the permitted number."""
    for agent_name, _ in sorted(survey.by_tool.get(TOOL, ())):
        raw_jobs, jobs = load_memories(org, agent_name).values.get(MEMORY), []
        for name, raw in sorted(raw_jobs.items()) if isinstance(raw_jobs, dict) else ():
            with suppress(ValueError, TypeError):  # a person has edited the file; the tool reports the problem
                jobs.append((f"{agent_name}.{name}", parse_agent_job(agent_name, raw)))
        yield from jobs[: calendar.agents.max_jobs]


def parse_agent_job(agent_name: str, raw: Any) -> CalendarJob:
    """Return an agent's job from JSON. Raises `ValueError` or `TypeError` for an invalid job."""
    job: CalendarJob = to_value(CalendarJob, {**raw, "agent": agent_name})
    if job.cron is None:
        raise ValueError('a job must have "cron"')
    for error in (find_cron_error(job.cron), zone_error(job.timezone) if job.timezone else None):
        if error:
            raise ValueError(f"{error[0]} ({error[1]})")
    return job


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
        self.jobs = {**self.calendar.jobs, **dict(_iter_agent_jobs(org, self.calendar, survey))}
        self._history: Mapping[str, JobHistory] | None = None

    def find_due_job(self, name: str, job: CalendarJob) -> DueJob | None:
        """Return a job if it is due, or None."""
        if not self._at or job.paused or not (job.agent in self._survey.agents or job.agent in self._survey.broken):
            return None
        due_times = self.find_due_times(job, self.find_first_reading(name, job), self._at) if self._since else None
        if job.cron is not None and due_times is None and job.overlap != "queue":
            return None
        history = self.get_history(name) if job.overlap != "allow" or job.after is not None else JobHistory()
        latest = history.latest
        if latest is not None and job.overlap != "allow":
            if latest.is_open:
                return None
            if job.overlap == "queue" and due_times is None:
                due_times = self._queued_due_times(job, latest)
        if job.after is not None and not self._is_predecessor_done(job, latest):
            return None
        if due_times is not None:
            return DueJob(name, job, timestamp(due_times.last), due_times.times)
        return DueJob(name, job, self._at) if job.cron is None else None

    def find_first_reading(self, name: str, job: CalendarJob) -> str:
        """Return the clock time after which a job's due times count."""
        text = schedule_text(job, self._config.org.timezone)
        return find_first_reading(self._org, schedule_name(name), text, self._since, self._at)

    def find_due_times(self, job: CalendarJob, since: str, until: str) -> DueTimes | None:
        """Return the due times of a job in an interval, without holidays, or None."""
        zone_name = job.timezone or self._config.org.timezone
        if job.cron is None or zone_name is None or since >= until:
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
        if job.cron is None or zone_name is None:
            return
        for time in islice(iter_occurrences(job.cron, zone_name, start), MAX_UPCOMING):
            if job.on_holidays or not self.is_holiday(time):
                yield time

    def is_holiday(self, time: datetime) -> bool:
        """Return True if a time falls on a holiday in the time zone of the schedule."""
        return f"{time:%Y-%m-%d}" in self.calendar.holidays or f"{time:%m-%d}" in self.calendar.holidays

    def _queued_due_times(self, job: CalendarJob, latest: RequestView) -> DueTimes | None:
        """Return the due times that passed while the last request was open."""
        due, closing_entry = latest.entry.payload.get("due"), latest.closed_by
        if closing_entry is None or not (is_timestamp(due) and is_timestamp(closing_entry.created_at)):
            return None
        return self.find_due_times(job, str(due), closing_entry.created_at)

    def _is_predecessor_done(self, job: CalendarJob, latest: RequestView | None) -> bool:
        """Return True if the preceding job was answered recently and the answer is unused."""
        answered = self.get_history(job.after or "").answered
        closing_entry = answered.closed_by if answered else None
        if answered is None or closing_entry is None or not is_timestamp(closing_entry.created_at):
            return False
        age = parse_timestamp(self._at) - parse_timestamp(closing_entry.created_at)
        has_request_since = latest is not None and latest.tick > (answered.end_tick or 0)  # each answer leads on once
        return not has_request_since and age <= timedelta(minutes=job.within_minutes)

    def get_history(self, name: str) -> JobHistory:
        """Return the history of a job before this tick."""
        if self._history is None:
            self._history = {job: _to_history(requests) for job, requests in self._requests_by_job().items()}
        return self._history.get(name, JobHistory())

    def _requests_by_job(self) -> dict[str, list[RequestView]]:
        """Return the requests of each job, oldest first."""
        asker, by_job = find_calendar_agent(self._survey.agents, self._config), dict[str, list[RequestView]]()
        for request in self._job_requests():
            job = request.entry.payload.get("job")
            if request.asker == asker and isinstance(job, str):
                by_job.setdefault(job, []).append(request)
        return by_job

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


def _to_history(requests: list[RequestView]) -> JobHistory:
    answered_requests = [request for request in requests if request.end == "answered"]
    return JobHistory(requests[-1], answered_requests[-1] if answered_requests else None)


def find_due_jobs(view: TickView) -> list[DueJob]:
    """Return the due jobs of a tick in the order of the calendar."""
    schedule = get_job_schedule(view)
    candidates = (schedule.find_due_job(name, job) for name, job in schedule.jobs.items())
    return [job for job in candidates if job is not None]


def get_job_schedule(view: TickView) -> JobSchedule:
    """Return the job schedule of an organisation in a tick."""
    people = view.survey.find_people(view.config)
    return JobSchedule(view.org, view.survey, view.config, people=people, tick=view.tick, since=view.since, at=view.at)
