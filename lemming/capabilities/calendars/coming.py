"""The jobs of the calendar as they stand, for screens; looks only."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from lemming.capabilities.calendars.calendar import Job
from lemming.capabilities.calendars.jobs import Past, jobs_in
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.times.cron import explained
from lemming.kernel.base.times.words import moment_in_words, until_text
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.counter import load_counter
from lemming.kernel.tick.seams import TickLook


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
        return f"{moment_in_words(self.next)} ({until_text(self.next, self.now)})"

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
    tick, since = load_counter(org)
    jobs = jobs_in(TickLook(org, config, survey, tick, timestamp(now), since))
    return [
        JobNow(name, job, next(jobs.occurrences(job, now), None), jobs.past_of(name), now)
        for name, job in jobs.jobs.items()
    ]
