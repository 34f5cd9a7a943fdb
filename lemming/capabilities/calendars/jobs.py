"""Which jobs of the calendar are due, and how they stand: a view over the requests that were made for them.

A request of a job says so (`payload.job`) and names the moment it was due (`payload.due`); nothing is stored
beside that. Rules: docs/time.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple

from lemming.capabilities.calendars.calendar import Calendar, Job, asker_in, load_calendar
from lemming.capabilities.cron.expressions import Due, due_between, occurrences, why_no_cron
from lemming.capabilities.requests.all_requests import requests_of
from lemming.capabilities.requests.index import RequestEntries
from lemming.capabilities.requests.view import RequestView
from lemming.kernel.agents import Survey, agent_folders
from lemming.kernel.base.clock import is_timestamp, parse_timestamp, timestamp
from lemming.kernel.base.times.zones import why_no_zone
from lemming.kernel.files.documents import value_of
from lemming.kernel.memory import read_memories
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.firing_plan import people_in
from lemming.kernel.tick.first_readings import find_first_reading
from lemming.kernel.tick.seams import TickLook

TOOL, MEMORY = "keep_job", "calendar"
MOMENTS_AHEAD = 200


class JobDue(NamedTuple):
    """A job that is to be asked for now. `due` is the last of its moments, `times` how many it stands for."""

    name: str
    job: Job
    due: str
    times: int = 1

    @property
    def payload(self) -> dict[str, Any]:
        """The payload of the request."""
        job = self.job
        more: dict[str, Any] = {"times": self.times} if self.times > 1 else {}
        if job.deadline is not None:
            more["deadline"] = job.deadline
        return {
            "text": job.text,
            "target": job.agent,
            **job.payload,
            "job": self.name,
            "due": self.due,
            **more,
        }


class Past(NamedTuple):
    """What became of a job before: its latest request, and the latest that was answered."""

    latest: RequestView | None = None
    answered: RequestView | None = None


def all_jobs(org: Organisation, calendar: Calendar, survey: Survey) -> dict[str, Job]:
    """Return the jobs of the calendar and those that agents keep themselves, these as `agent.name`."""
    own = {
        f"{name}.{key}": job
        for name, _ in sorted(survey.by_tool.get(TOOL, ()))
        for key, job in jobs_kept_by(org, name, calendar)
    }
    return {**calendar.jobs, **own}


def jobs_kept_by(org: Organisation, agent_name: str, calendar: Calendar) -> list[tuple[str, Job]]:
    """Return the jobs that an agent keeps in its memory, as far as they are some, and as many as it may."""
    kept = read_memories(org, agent_name).values.get(MEMORY)
    found = []
    for name, plain in sorted(kept.items()) if isinstance(kept, dict) else ():
        try:
            found.append((name, job_of(agent_name, plain)))
        except (ValueError, TypeError):  # a person has edited it; the tool says what is wrong
            continue
    return found[: calendar.agents.max_jobs]


def job_of(agent_name: str, plain: Any) -> Job:
    """Return a job that an agent keeps; raise `ValueError` or `TypeError` for what is none."""
    job: Job = value_of(Job, {**plain, "agent": agent_name})
    if job.cron is None:
        raise ValueError('a job needs "cron"')
    for why in (why_no_cron(job.cron), why_no_zone(job.timezone) if job.timezone else None):
        if why:
            raise ValueError(f"{why[0]} ({why[1]})")
    return job


class Jobs:
    """The jobs of an organisation in one tick, for the agent that asks for them."""

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
        self.jobs = all_jobs(org, self.calendar, survey)
        self._past: Mapping[str, Past] | None = None

    def due(self) -> list[JobDue]:
        """Return the jobs to ask for, in the order in which they stand."""
        if not self._at:
            return []
        found = (self._due(name, job) for name, job in self.jobs.items())
        return [job for job in found if job is not None]

    def _due(self, name: str, job: Job) -> JobDue | None:
        if job.paused or not (job.agent in self._survey.agents or job.agent in self._survey.broken):
            return None
        moments = self.moments(job, self.find_first_reading(name, job), self._at) if self._since else None
        if job.cron is not None and moments is None and job.overlap != "queue":
            return None
        past = self.past_of(name) if job.overlap != "allow" or job.after is not None else Past()
        latest = past.latest
        if latest is not None and job.overlap != "allow":
            if latest.is_open:
                return None
            if job.overlap == "queue" and moments is None:
                moments = self._meanwhile(job, latest)
        if job.after is not None and not self._may_follow(job, latest):
            return None
        if moments is not None:
            return JobDue(name, job, timestamp(moments.last), moments.times)
        return JobDue(name, job, self._at) if job.cron is None else None

    def find_first_reading(self, name: str, job: Job) -> str:
        """Return the reading of the clock after which the moments of a job count."""
        text = schedule_text(job, self._config.org.timezone)
        return find_first_reading(self._org, schedule_name(name), text, self._since, self._at)

    def moments(self, job: Job, since: str, until: str) -> Due | None:
        """Return the moments of a job in an interval, without holidays; None: there is none."""
        zone_name = job.timezone or self._config.org.timezone
        if job.cron is None or zone_name is None or since >= until:
            return None
        return due_between(
            job.cron,
            zone_name,
            parse_timestamp(since),
            parse_timestamp(until),
            grace=timedelta(minutes=job.grace_minutes) if job.missed == "skip" else None,
            counts=lambda moment: job.on_holidays or not self.is_holiday(moment),
        )

    def occurrences(self, job: Job, after: datetime) -> Iterator[datetime]:
        """Yield the moments of a job after one, without holidays, of so many that come next."""
        zone_name = job.timezone or self._config.org.timezone
        if job.cron is None or zone_name is None:
            return
        for moment in islice(occurrences(job.cron, zone_name, after), MOMENTS_AHEAD):
            if job.on_holidays or not self.is_holiday(moment):
                yield moment

    def is_holiday(self, moment: datetime) -> bool:
        """Return whether a moment falls on a holiday, in its own time zone."""
        return f"{moment:%Y-%m-%d}" in self.calendar.holidays or f"{moment:%m-%d}" in self.calendar.holidays

    def _meanwhile(self, job: Job, latest: RequestView) -> Due | None:
        """Return the moments that came while the last request was open, which waited for its end."""
        due, closed = latest.entry.payload.get("due"), latest.closed_by
        if closed is None or not (is_timestamp(due) and is_timestamp(closed.created_at)):
            return None
        return self.moments(job, str(due), closed.created_at)

    def _may_follow(self, job: Job, latest: RequestView | None) -> bool:
        """Return whether the job before this one was answered lately, and nothing was asked since."""
        answered = self.past_of(job.after or "").answered
        closed = answered.closed_by if answered else None
        if answered is None or closed is None or not is_timestamp(closed.created_at):
            return False
        age = parse_timestamp(self._at) - parse_timestamp(closed.created_at)
        is_used = latest is not None and latest.tick > (answered.end_tick or 0)  # each answer leads on once
        return not is_used and age <= timedelta(minutes=job.within_minutes)

    def past_of(self, name: str) -> Past:
        """Return what became of a job in the ticks before this one."""
        if self._past is None:
            self._past = {job: _past(found) for job, found in self._by_job().items()}
        return self._past.get(name, Past())

    def _by_job(self) -> dict[str, list[RequestView]]:
        """Return the requests of each job, the oldest first."""
        asker, by_job = asker_in(self._survey.agents, self._config), dict[str, list[RequestView]]()
        for request in self._requests():
            job = request.entry.payload.get("job")
            if request.asker == asker and isinstance(job, str):
                by_job.setdefault(job, []).append(request)
        return by_job

    def _requests(self) -> Iterator[RequestView]:
        survey = self._survey
        entries = self._org.own(RequestEntries).look(agent_folders(self._org.base), decides=True)
        # not what this tick has written by now: a tick that goes on must come to the same jobs
        before = {name: entry for name, entry in entries.items() if name.tick < self._tick}
        yield from requests_of(
            before,
            agents=survey.agents,
            people=self._people,
            order=survey.order,
            tick=self._tick,
            broken=survey.broken,
        )


def schedule_name(job_name: str) -> str:
    """Return the name of a job's schedule, which no agent has."""
    return f"job {job_name}"


def schedule_text(job: Job, org_zone: str | None) -> str:
    """Return the expression and time zone of a job's schedule: a change of either makes it another."""
    return f"{job.cron} {job.timezone or org_zone}"


def _past(requests: list[RequestView]) -> Past:
    answered = [request for request in requests if request.end == "answered"]
    return Past(requests[-1], answered[-1] if answered else None)


def jobs_due(look: TickLook) -> list[JobDue]:
    """Return the jobs to ask for in a tick."""
    return jobs_in(look).due()


def jobs_in(look: TickLook) -> Jobs:
    """Return the jobs of an organisation as they stand in a tick."""
    people = people_in(look.survey, look.config)
    return Jobs(
        look.org, look.survey, look.config, people=people, tick=look.tick, since=look.since, at=look.at
    )
