"""What comes up by the clock: turns, jobs of the calendar, entries that wait. For any screen; looks only."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice, takewhile
from typing import Any, NamedTuple

from lemming.agents import Survey, survey_agents
from lemming.base.clock import SystemClock, parse_timestamp, timestamp
from lemming.base.times.cron import explained, occurrences, zone
from lemming.base.times.words import said, said_until
from lemming.capabilities.calendars.calendar import Job, asker_in
from lemming.capabilities.calendars.jobs import Jobs, Past
from lemming.mail.index import EntryIndex
from lemming.messages import OutboxEntry
from lemming.org.config import Config
from lemming.org.organisation import Organisation
from lemming.tick.counter import load_counter
from lemming.tick.plan import people_in

MOST_OF_EACH = 200


class Coming(NamedTuple):
    """Something that comes up: at which moment, for which agent, and what it is, in words."""

    at: datetime
    agent: str
    what: str

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {"at": timestamp(self.at), "agent": self.agent, "what": self.what}


class JobNow(NamedTuple):
    """A job as it stands: its next moment, and what became of it before."""

    name: str
    job: Job
    next: datetime | None
    past: Past
    now: datetime

    @property
    def when(self) -> str:
        """When it is asked for, in words."""
        job = self.job
        words = [f"{explained(job.cron)} ({job.cron})"] if job.cron else []
        return "; ".join(words + ([f"after {job.after}"] if job.after else []))

    @property
    def coming(self) -> str:
        """Its next moment, in words."""
        if self.job.paused:
            return "paused"
        if self.next is None:
            return f"once {self.job.after} is answered" if self.job.after else "never: no time zone"
        return f"{said(self.next)} ({said_until(self.next, self.now)})"

    @property
    def outcome(self) -> str:
        """What became of its last request, in words."""
        latest = self.past.latest
        if latest is None:
            return "not asked yet"
        if latest.is_open:
            return f"open since tick {latest.tick}"
        return f"{latest.end} in tick {latest.end_tick}"

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        latest = self.past.latest
        return {
            "name": self.name,
            "agent": self.job.agent,
            "text": self.job.text,
            "when": self.when,
            "next_at": timestamp(self.next) if self.next else None,
            "paused": self.job.paused,
            "last_request": latest.id if latest else None,
            "last_tick": latest.tick if latest else None,
            "last_end": latest.end if latest else None,
        }


def jobs_now(org: Organisation, config: Config) -> list[JobNow]:
    """Return the jobs as they stand. Raises `ConfigError` for a calendar that is none."""
    now, survey = SystemClock().now(), survey_agents(org)
    jobs = _jobs(org, survey, config, now)
    return [
        JobNow(name, job, _next(jobs, job, config, now), jobs.past_of(name), now)
        for name, job in jobs.jobs.items()
    ]


def _jobs(org: Organisation, survey: Survey, config: Config, now: datetime) -> Jobs:
    tick, since = load_counter(org)
    people = people_in(survey, config)
    return Jobs(org, survey, config, people=people, tick=tick, since=since, at=timestamp(now))


def _next(jobs: Jobs, job: Job, config: Config, now: datetime) -> datetime | None:
    zone_name = job.timezone or config.org.timezone
    if job.cron is None or zone_name is None:
        return None
    found = islice(occurrences(job.cron, zone_name, now), MOST_OF_EACH)
    return next((it for it in found if job.on_holidays or not jobs.is_holiday(it)), None)


def coming_until(org: Organisation, config: Config, until: datetime) -> list[Coming]:
    """Return what comes up from now until a moment, in order, of each schedule the first `MOST_OF_EACH`."""
    now, survey = SystemClock().now(), survey_agents(org)
    found = [
        *_turns(survey, config, now, until),
        *_asked(org, survey, config, now, until),
        *_entries(org, survey, config, now, until),
    ]
    return sorted(found, key=lambda it: (it.at, it.agent, it.what))


def _turns(survey: Survey, config: Config, now: datetime, until: datetime) -> Iterator[Coming]:
    for schedule, names in survey.by_clock.items():
        zone_name = schedule.timezone or config.org.timezone
        if schedule.cron and zone_name:
            moments = islice(occurrences(schedule.cron, zone_name, now), MOST_OF_EACH)
            for moment in takewhile(lambda it: it <= until, moments):
                yield from (Coming(moment, name, f"a turn, cron {schedule.cron}") for name in names)


def _asked(
    org: Organisation, survey: Survey, config: Config, now: datetime, until: datetime
) -> Iterator[Coming]:
    if asker_in(survey.agents, config) is None:
        return
    jobs = _jobs(org, survey, config, now)
    for name, job in jobs.jobs.items():
        zone_name = job.timezone or config.org.timezone
        if job.cron and zone_name and not job.paused:
            moments = islice(occurrences(job.cron, zone_name, now), MOST_OF_EACH)
            for moment in takewhile(lambda it: it <= until, moments):
                if job.on_holidays or not jobs.is_holiday(moment):
                    yield Coming(moment, job.agent, f"job {name}: {job.text}")


def _entries(
    org: Organisation, survey: Survey, config: Config, now: datetime, until: datetime
) -> Iterator[Coming]:
    index, here = org.own(EntryIndex), zone(config.org.timezone or "UTC")
    for author in survey.agents:
        for name in index.outbox(author).by_hand:
            moment = index.moment_of(name)
            if timestamp(now) < moment <= timestamp(until) and isinstance(
                entry := index.read(name), OutboxEntry
            ):
                to = ", ".join(sorted(entry.targets)) or "all"
                text = entry.payload.get("text", "")
                yield Coming(parse_timestamp(moment).astimezone(here), to, f"an entry of {author}: {text}")
