"""`lemming calendar`: the jobs, when each comes up next, and what became of it last."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from itertools import count
from typing import Any, NamedTuple

from lemming.capabilities.calendars.calendar import (
    CALENDAR_FILE,
    Job,
    asker_in,
    load_calendar,
    problems_of_calendar,
)
from lemming.capabilities.calendars.jobs import Past, jobs_in
from lemming.capabilities.cron.expressions import explained, next_occurrence, why_no_cron
from lemming.commands.options import Here, Limit
from lemming.commands.screen import show, tell
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import parse, pretty
from lemming.kernel.base.times.words import moment_in_words, until_text
from lemming.kernel.org.changing import changing_file
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.tick.counter import load_counter
from lemming.kernel.tick.seams import TickLook

NAME_WORDS = 4
MAKE_ONE = "lemming agents new calendar --model clock --read '*'"

COLUMNS = {
    "JOB": "name", "AGENT": lambda it: it.job.agent, "NEXT": "coming", "LAST": "outcome", "WHEN": "when"
}  # fmt: skip


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


def calendar(here: Here, limit: Limit = None) -> None:
    """Show the jobs of config/calendar.json: who is asked, when, when next, and what came of it last.

    A job is a request of the agent whose model key is clock; `lemming requests --of` that agent lists them.
    Those that agents keep themselves are listed as AGENT.NAME.

    \b
    Example:
      lemming calendar
    """
    org = Organisation.at(here.org)
    config = load_config(org)
    jobs = jobs_now(org, config)
    nothing = f"no jobs; {CALENDAR_FILE} holds them, and `lemming send --every` writes one"
    here.lists("job", jobs, COLUMNS, limit, nothing=nothing)
    if jobs and not here.as_json and asker_in(survey_agents(org).agents, config) is None:
        tell(f"warning: nobody asks for them: {MAKE_ONE}", style="yellow")


def add_job(base: OrgPath, agent: str, text: str, cron: str) -> None:
    """Write a job into the calendar, and say what it is called, when it comes up, and what is amiss."""
    org, config = Organisation.at(base), load_config(base)
    if why := why_no_cron(cron):
        raise UsageError(why[0], hint=why[1])
    if config.org.timezone is None:
        raise UsageError("no time zone is set", hint='"timezone": "Europe/Berlin" in config/org.json')
    with changing_file(base, CALENDAR_FILE) as opened:
        kept = load_calendar(org)  # raises where it is broken: nothing is written over then
        name, plain = _name_for(text, kept.jobs), parse(opened.raw, allow_bom=True)
        jobs = {**plain.get("jobs", {}), name: {"agent": agent, "text": text, "cron": cron}}
        opened.publish(pretty({**plain, "jobs": jobs}))
    show(CALENDAR_FILE)
    moment = next_occurrence(cron, config.org.timezone, SystemClock().now())
    first = moment_in_words(moment) if moment else "never"
    tell(f'job "{name}": {agent} is asked {explained(cron)[:1].lower()}{explained(cron)[1:]}; first {first}')
    for problem in problems_of_calendar(org, survey_agents(org).agents, config):
        tell(f"warning: {problem}", style="yellow")


def _name_for(text: str, jobs: Mapping[str, Job]) -> str:
    """Return a name for a job that no other has, from the first words of its text."""
    words = re.findall(r"[a-z0-9]+", text.lower())[:NAME_WORDS]
    name = "-".join(words) or "job"
    return next(it for number in count(1) if (it := name if number == 1 else f"{name}-{number}") not in jobs)
