"""The screen of jobs, and adding a job to the calendar from a command: `lemming send --every`."""

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
    find_calendar_problems,
    load_calendar,
)
from lemming.capabilities.calendars.calendar_jobs import JobHistory, get_job_schedule
from lemming.commands.terminal import print_data, print_notice, print_warning
from lemming.ext import CheckSubject, TickView
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import dump_pretty, parse
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.tick.tick_counter import load_counter
from lemming.libraries.cron_expressions import describe_cron, find_cron_error, next_occurrence
from lemming.libraries.everyday_times import format_moment, format_remaining_time
from lemming.libraries.settings_edits import edit_file
from lemming.queries.screens.screen import Column, Note, Screen, ScreenResult

MAKE_ONE = "lemming agents new calendar --model clock --read '*'"


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


def load_job_statuses(org: Organisation, config: Config) -> list[JobStatus]:
    """Load the status of all jobs. Raises `ConfigError` for an invalid calendar."""
    current_time, survey = SystemClock().now(), survey_agents(org)
    tick, since = load_counter(org)
    jobs = get_job_schedule(TickView(org, config, survey, tick, timestamp(current_time), since))
    return [
        JobStatus(name, job, next(jobs.next_occurrences(job, current_time), None), jobs.get_history(name), current_time)
        for name, job in jobs.jobs.items()
    ]


def list_jobs(org: Organisation) -> ScreenResult:
    """List scheduled jobs with their next and last run.

    Jobs are in config/calendar.json. A job is a request of the agent whose model key is clock; `lemming
    requests --from AGENT` lists these requests. Jobs that agents manage themselves are listed as AGENT.NAME.

    \b
    Example:
      lemming calendar
    """
    config = load_config(org)
    jobs = load_job_statuses(org, config)
    is_idle = jobs and find_calendar_agent(survey_agents(org).agents, config) is None
    notes = [Note(f"warning: no agent runs these jobs: {MAKE_ONE}", is_warning=True)] if is_idle else []
    return ScreenResult(jobs, notes)


def _of_latest(key: str) -> Any:
    return lambda status: getattr(status.history.latest, key) if status.history.latest else None


CALENDAR = Screen(
    "calendar",
    kind="job",
    title="Calendar",
    query=list_jobs,
    empty=f"no jobs; `lemming send --every` adds one to {CALENDAR_FILE}",
    columns=(
        Column("name", "JOB", "Name of the job."),
        Column("agent", "AGENT", "Agent that is asked.", value=lambda status: status.job.agent, shown="agent"),
        Column("text", about="Text of the request.", value=lambda status: status.job.text),
        Column(
            "next_at", "NEXT", "Next time, or null.", str | None,
            value=lambda status: timestamp(status.next) if status.next else None, text=lambda status: status.next_time_text,
        ),
        Column("paused", about="Pause of the job, or empty.", value=lambda status: status.job.paused),
        Column(
            "last_end", "LAST", "End of the last request, or null.", str | None, value=_of_latest("end"),
            text=lambda status: status.last_outcome_text,
        ),
        Column("last_request", about="Id of the last request, or null.", type=str | None, value=_of_latest("id")),
        Column("last_tick", about="Tick of the last request, or null.", type=int | None, value=_of_latest("tick")),
        Column("when", "WHEN", "Schedule in words.", value=lambda status: status.schedule_text),
    ),
)  # fmt: skip


NAME_WORDS = 4


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
    for problem in find_calendar_problems(CheckSubject(org=org, config=config)):
        print_warning(f"warning: {problem}")


def _generate_job_name(text: str, jobs: Mapping[str, CalendarJob]) -> str:
    tokens = re.findall(r"[a-z0-9]+", text.lower())[:NAME_WORDS]
    name = "-".join(tokens) or "job"
    return next(status for number in count(1) if (status := name if number == 1 else f"{name}-{number}") not in jobs)
