"""`config/calendar.json`: jobs with a schedule. Format: docs/settings.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Literal

from lemming.ext import CheckSubject, ConfigError, Problem, describe_field, make_field
from lemming.kernel.agents import suggest_agent, survey_agents
from lemming.kernel.base.jsontext import did_you_mean, locate
from lemming.kernel.base.times import zone_error
from lemming.kernel.files.json_documents import Document, parse_document, unreadable_error
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.resume import Agent
from lemming.libraries.cron_expressions import find_cron_error

CALENDAR_FILE = "config/calendar.json"
CLOCK = "clock"
MAX_JOBS = 60
LIMIT_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class CalendarJob:
    """A scheduled request to an agent."""

    agent: str = field(metadata=describe_field("The agent that gets the request.", min_length=1))
    text: str = field(metadata=describe_field("Text of the request.", min_length=1))
    payload: dict[str, Any] = make_field(dict, "Further keys of the request, such as schema.")
    deadline: int | None = make_field(None, "Ticks until the request expires.", ge=1)
    cron: str | None = make_field(None, 'Cron expression: "0 8 * * mon-fri", or @daily and the like.')
    timezone: str | None = make_field(None, "Time zone of cron. Default: that of config/org.json.")
    missed: Literal["once", "skip"] = make_field(
        "once", 'Missed times. "once": one request for all of them; "skip": only those younger than grace_minutes.'
    )
    grace_minutes: float = make_field(60.0, 'Maximum delay in minutes, with "missed": "skip".', ge=0, le=1e6)
    after: str | None = make_field(
        None, "Another job. Without cron: asked once that job was answered; with cron: only if it was answered."
    )
    within_minutes: float = make_field(1440.0, "Maximum age of that answer in minutes.", gt=0, le=1e6)
    overlap: Literal["skip", "queue", "allow"] = make_field(
        "skip",
        'While the last request of this job is open: "skip" this time, "queue" one until it ends, or "allow" several.',
    )
    on_holidays: bool = make_field(False, "Also ask on holidays.")
    paused: str = make_field("", "Any text, such as the reason: the job is not asked.")


@dataclass(frozen=True, kw_only=True)
class AgentJobSettings:
    """Limits on jobs that agents create with the tool keep_job."""

    max_jobs: int = make_field(5, "Maximum number of jobs of one agent.", ge=0, le=20)
    min_minutes: float = make_field(60.0, "Minimum minutes between two times.", ge=1)


@dataclass(frozen=True, kw_only=True)
class Calendar:
    """Jobs by name, and the holidays without jobs."""

    jobs: dict[str, CalendarJob] = field(default_factory=dict)
    holidays: list[str] = make_field(list, "Days without jobs: 2026-12-25, or 12-25 for every year.")
    agents: AgentJobSettings = field(default_factory=AgentJobSettings)


def find_calendar_agent(agents: Mapping[str, Agent], config: Config) -> str | None:
    """Return the agent that sends the jobs: the first by name with the clock as the model, or None."""
    keys = {key for key, entry in config.models.items() if entry.provider == CLOCK}
    return min((name for name, agent in agents.items() if agent.model.key in keys), default=None)


def load_calendar(org: Organisation) -> Calendar:
    """Return the calendar, parsed again only after a change. Raises `ConfigError` with all problems."""
    try:
        return org.files.get_value(CALENDAR_FILE, _parse_calendar, limit_bytes=LIMIT_BYTES).value
    except FileNotFoundError:
        return Calendar()
    except OSError as error:
        raise unreadable_error(CALENDAR_FILE, error) from error


def _parse_calendar(raw: bytes) -> Document[Calendar]:
    document = parse_document(raw, CALENDAR_FILE, Calendar, limit_bytes=LIMIT_BYTES, unknown_key_policy="none")
    text = raw.decode().removeprefix("\ufeff")
    problems = [
        Problem(message, CALENDAR_FILE, *locate(text, pointer), pointer=pointer, hint=hint)
        for pointer, message, hint in _validate_calendar(document.value)
    ]
    if problems:
        raise ConfigError(str(problems[0]), problems=(*problems, *document.warnings))
    return document


def _validate_calendar(calendar: Calendar) -> Iterator[tuple[str, str, str]]:
    """Yield a calendar's internal problems: pointer, message and hint."""
    if len(calendar.jobs) > MAX_JOBS:
        yield ("/jobs", f"jobs must be at most {MAX_JOBS}, got {len(calendar.jobs)}", "let agents ask each other")
    for index, day in enumerate(calendar.holidays):
        if not is_date_pattern(day):
            hint = "write 2026-12-25, or 12-25 for every year"
            yield f"/holidays/{index}", f'a holiday must be a date, got "{day}"', hint
    for name, job in calendar.jobs.items():
        pointer = f"/jobs/{name}"
        if job.cron is not None and (error := find_cron_error(job.cron)):
            yield f"{pointer}/cron", *error
        if job.timezone is not None and (error := zone_error(job.timezone)):
            yield f"{pointer}/timezone", *error
        if job.cron is None and job.after is None:
            yield (pointer, f'job "{name}" must have "cron" or "after"', 'add "cron", or "after" with another job')
        if job.after is not None and (job.after not in calendar.jobs or job.after == name):
            other_jobs = [other for other in calendar.jobs if other != name]
            hint = did_you_mean(job.after, other_jobs) or f"jobs: {', '.join(other_jobs) or 'no other'}"
            yield f"{pointer}/after", f'job "{job.after}" does not exist', hint


def is_date_pattern(text: str) -> bool:
    """Return True for a date of one year or of every year.

    >>> is_date_pattern("2026-12-25"), is_date_pattern("02-29"), is_date_pattern("25.12.")
    (True, True, False)
    """
    try:
        date.fromisoformat(text if len(text) == 10 else f"2028-{text}")  # with a 29th of February
    except ValueError:
        return False
    return True


def find_calendar_problems(subject: CheckSubject) -> Iterator[Problem]:
    """Yield problems of a calendar in the organisation: asked agents, the asking agent, time zones."""
    if subject.only is not None:
        return
    config, survey = subject.config, survey_agents(subject.org)
    agents = survey.agents
    try:
        calendar, asker = load_calendar(subject.org), find_calendar_agent(agents, config)
    except ConfigError as error:
        yield from error.problems
        return
    if calendar.jobs and asker is None:
        hint = "create one: lemming agents new calendar --model clock --read '*'"
        yield Problem("these jobs never run: no agent has the clock as its model", CALENDAR_FILE, hint=hint)
    for name, job in calendar.jobs.items():
        pointer = f"/jobs/{name}"
        if job.cron is not None and (job.timezone or config.org.timezone) is None:
            message = "a cron expression requires a time zone, and none is set"
            hint = 'add "timezone" here, or for all in config/org.json'
            yield Problem(message, CALENDAR_FILE, pointer=f"{pointer}/cron", hint=hint)
        if job.agent in survey.broken:
            continue  # its resume is reported already
        if job.agent not in agents:
            hint = suggest_agent(job.agent, [*agents])
            yield Problem(f'there is no agent "{job.agent}"', CALENDAR_FILE, pointer=f"{pointer}/agent", hint=hint)
        elif asker is not None:
            for reader, author in ((job.agent, asker), (asker, job.agent)):
                if not agents[reader].may_read(author):
                    message = f"{reader} may not read {author}"
                    hint = f'add "{author}" to permissions.read_outboxes in agents/{reader}/resume.json'
                    yield Problem(message, CALENDAR_FILE, pointer=f"{pointer}/agent", hint=hint)
