"""`lemming calendar`: jobs with their next times and last outcomes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from itertools import count
from typing import Any, NamedTuple

from lemming.capabilities.calendars.calendar_file import (
    CALENDAR_FILE,
    CalendarJob,
    find_calendar_agent,
    load_calendar,
    validate_calendar,
)
from lemming.capabilities.calendars.calendar_jobs import JobHistory, get_job_schedule
from lemming.commands.command_context import CommandContext, Limit
from lemming.commands.terminal import print_data, print_notice
from lemming.ext import TickView
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import dump_pretty, parse
from lemming.kernel.base.times.format_times import format_moment, format_remaining_time
from lemming.kernel.org.changing import edit_file
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.tick.tick_counter import load_counter
from lemming.libraries.cron_expressions import describe_cron, find_cron_error, next_occurrence

NAME_WORDS = 4
MAKE_ONE = "lemming agents new calendar --model clock --read '*'"

COLUMNS = {
    "JOB": "name", "AGENT": lambda status: status.job.agent, "NEXT": "next_time_text", "LAST":
    "last_outcome_text", "WHEN": "schedule_text"
}  # fmt: skip


class JobStatus(NamedTuple):
    """Status of a job: next time and past requests."""

    name: str
    job: CalendarJob
    next: datetime | None
    history: JobHistory
    current_time: datetime

    @property
    def schedule_text(self) -> str:
        """The schedule as text."""
        job = self.job
        parts = [f"{describe_cron(job.cron)} ({job.cron})"] if job.cron else []
        return "; ".join(parts + ([f"after {job.after}"] if job.after else []))

    @property
    def next_time_text(self) -> str:
        """The next time as text."""
        if self.job.paused:
            return "paused"
        if self.next is None:
            return f"once {self.job.after} is answered" if self.job.after else "never: no time zone"
        return f"{format_moment(self.next)} ({format_remaining_time(self.next, self.current_time)})"

    @property
    def last_outcome_text(self) -> str:
        """The outcome of the last request as text."""
        latest = self.history.latest
        if latest is None:
            return "not run yet"
        if latest.is_open:
            return f"open since tick {latest.tick}"
        return f"{latest.end} in tick {latest.end_tick}"

    def as_json(self) -> dict[str, Any]:
        """Return the status as JSON values."""
        latest = self.history.latest
        return {
            "name": self.name,
            "agent": self.job.agent,
            "text": self.job.text,
            "when": self.schedule_text,
            "next_at": timestamp(self.next) if self.next else None,
            "paused": self.job.paused,
            "last_request": latest.id if latest else None,
            "last_tick": latest.tick if latest else None,
            "last_end": latest.end if latest else None,
        }


def load_job_statuses(org: Organisation, config: Config) -> list[JobStatus]:
    """Load the status of all jobs. Raises `ConfigError` for an invalid calendar."""
    current_time, survey = SystemClock().now(), survey_agents(org)
    tick, since = load_counter(org)
    jobs = get_job_schedule(TickView(org, config, survey, tick, timestamp(current_time), since))
    return [
        JobStatus(name, job, next(jobs.next_occurrences(job, current_time), None), jobs.get_history(name), current_time)
        for name, job in jobs.jobs.items()
    ]


def calendar(context: CommandContext, limit: Limit = None) -> None:
    """List scheduled jobs with their next and last run.

    Jobs are in config/calendar.json. A job is a request of the agent whose model key is clock; `lemming
    requests --from AGENT` lists these requests. Jobs that agents manage themselves are listed as AGENT.NAME.

    \b
    Example:
      lemming calendar
    """
    org = Organisation.from_path(context.org)
    config = load_config(org)
    jobs = load_job_statuses(org, config)
    empty_text = f"no jobs; `lemming send --every` adds one to {CALENDAR_FILE}"
    context.print_list("job", jobs, COLUMNS, limit, empty_text=empty_text)
    if jobs and not context.as_json and find_calendar_agent(survey_agents(org).agents, config) is None:
        print_notice(f"warning: no agent runs these jobs: {MAKE_ONE}", style="yellow")


def add_job(base: OrgPath, agent: str, text: str, cron: str) -> None:
    """Add a job to the calendar; print name, next time and any warnings."""
    org, config = Organisation.from_path(base), load_config(base)
    if cron_error := find_cron_error(cron):
        raise UsageError(cron_error[0], hint=cron_error[1])
    if config.org.timezone is None:
        raise UsageError("no time zone is set", hint='set "timezone": "Europe/Berlin" in config/org.json')
    with edit_file(base, CALENDAR_FILE) as edit:
        current = load_calendar(org)  # raises where it is broken: nothing is written over then
        name, document = _generate_job_name(text, current.jobs), parse(edit.raw, allow_bom=True)
        jobs = {**document.get("jobs", {}), name: {"agent": agent, "text": text, "cron": cron}}
        edit.publish(dump_pretty({**document, "jobs": jobs}))
    print_data(CALENDAR_FILE)
    next_time = next_occurrence(cron, config.org.timezone, SystemClock().now())
    first = format_moment(next_time) if next_time else "never"
    print_notice(
        f'job "{name}": {agent} is asked {describe_cron(cron)[:1].lower()}{describe_cron(cron)[1:]}; first {first}'
    )
    for problem in validate_calendar(org, survey_agents(org).agents, config):
        print_notice(f"warning: {problem}", style="yellow")


def _generate_job_name(text: str, jobs: Mapping[str, CalendarJob]) -> str:
    """Return an unused job name made of the first words of the text."""
    tokens = re.findall(r"[a-z0-9]+", text.lower())[:NAME_WORDS]
    name = "-".join(tokens) or "job"
    return next(status for number in count(1) if (status := name if number == 1 else f"{name}-{number}") not in jobs)
