"""`config/calendar.json`: work that comes up by the clock. Format: docs/time.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Literal

from lemming.capabilities.cron.expressions import why_no_cron
from lemming.kernel.agents import nearest_agent
from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.base.jsontext import locate, nearest
from lemming.kernel.base.times.zones import why_no_zone
from lemming.kernel.files.documents import Document, read_text, unreadable
from lemming.kernel.files.fitting import about
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.resume import Agent

CALENDAR_FILE = "config/calendar.json"
CLOCK = "clock"
MOST_JOBS = 60
LIMIT_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Job:
    """Work that an agent is asked to do when its time comes."""

    agent: str = field(metadata=about("Who is asked.", min_length=1))
    text: str = field(metadata=about("What it is asked.", min_length=1))
    payload: dict[str, Any] = field(
        default_factory=dict, metadata=about("Further keys of the request, such as schema.")
    )
    deadline: int | None = field(
        default=None, metadata=about("Ticks after which nobody waits for the answer any more.", ge=1)
    )
    cron: str | None = field(default=None, metadata=about('When: "0 8 * * mon-fri", or @daily and the like.'))
    timezone: str | None = field(default=None, metadata=about("Time zone of cron. Default: the org's."))
    missed: Literal["once", "skip"] = field(
        default="once",
        metadata=about('Moments that passed while nothing ran: asked "once" for all, or "skip"ped.'),
    )
    grace_minutes: float = field(
        default=60.0, metadata=about('How late it may still be asked, with "missed": "skip".', ge=0, le=1e6)
    )
    after: str | None = field(
        default=None,
        metadata=about(
            "Another job. Without cron: asked once that one was answered; with cron: only if it was."
        ),
    )
    within_minutes: float = field(
        default=1440.0, metadata=about("How long ago that answer may have come.", gt=0, le=1e6)
    )
    overlap: Literal["skip", "queue", "allow"] = field(
        default="skip",
        metadata=about(
            'While the last request of this job is open: "skip" the moment, "queue" one until it is closed, '
            'or "allow" several.'
        ),
    )
    on_holidays: bool = field(default=False, metadata=about("Whether it is asked on holidays too."))
    paused: str = field(default="", metadata=about("Any text, such as why: the job is not asked."))


@dataclass(frozen=True, kw_only=True)
class OwnJobs:
    """What agents may keep themselves, with the tool keep_job."""

    max_jobs: int = field(default=5, metadata=about("Jobs of one agent.", ge=0, le=20))
    min_minutes: float = field(default=60.0, metadata=about("Shortest time between two moments.", ge=1))


@dataclass(frozen=True, kw_only=True)
class Calendar:
    """The jobs by name, and the days on which they rest."""

    jobs: dict[str, Job] = field(default_factory=dict)
    holidays: list[str] = field(
        default_factory=list, metadata=about("Days without jobs: 2026-12-25, or 12-25 for every year.")
    )
    agents: OwnJobs = field(default_factory=OwnJobs)


def asker_in(agents: Mapping[str, Agent], config: Config) -> str | None:
    """Return the agent that asks for the jobs: the first by name whose brain is the clock; None: nobody."""
    return min((name for name, agent in agents.items() if is_clock(agent.model.key, config)), default=None)


def is_clock(model_key: str, config: Config) -> bool:
    """Return whether the clock speaks for the agents of a model key."""
    entry = config.models.get(model_key)
    return entry is not None and entry.provider == CLOCK


def load_calendar(org: Organisation) -> Calendar:
    """Return the calendar, read again only when it has changed; raise `ConfigError` with all its problems."""
    try:
        outcome = org.files.reading(CALENDAR_FILE, _read, limit_bytes=LIMIT_BYTES).outcome
    except FileNotFoundError:
        return Calendar()
    except OSError as error:
        raise unreadable(CALENDAR_FILE, error) from error
    if isinstance(outcome, ConfigError):
        raise outcome.with_traceback(None)
    return outcome.value


def _read(raw: bytes) -> Document[Calendar]:
    document = read_text(raw, CALENDAR_FILE, Calendar, limit_bytes=LIMIT_BYTES, unknown_keys_are="none")
    text = raw.decode().removeprefix("\ufeff")
    wrong = [
        Problem(message, CALENDAR_FILE, *locate(text, pointer), pointer=pointer, hint=hint)
        for pointer, message, hint in _wrong(document.value)
    ]
    if wrong:
        raise ConfigError(str(wrong[0]), problems=(*wrong, *document.warnings))
    return document


def _wrong(calendar: Calendar) -> Iterator[tuple[str, str, str]]:
    """Yield what is wrong with a calendar by itself: the place, the mistake, what to write instead."""
    if len(calendar.jobs) > MOST_JOBS:
        yield "/jobs", f"{len(calendar.jobs)} jobs are more than {MOST_JOBS}", "let agents ask each other"
    for index, day in enumerate(calendar.holidays):
        if not is_day(day):
            yield f"/holidays/{index}", f'"{day}" is no day', "write 2026-12-25, or 12-25 for every year"
    for name, job in calendar.jobs.items():
        pointer = f"/jobs/{name}"
        if job.cron is not None and (why := why_no_cron(job.cron)):
            yield f"{pointer}/cron", *why
        if job.timezone is not None and (why := why_no_zone(job.timezone)):
            yield f"{pointer}/timezone", *why
        if job.cron is None and job.after is None:
            yield pointer, f'job "{name}" has no time', 'give it "cron", or "after" another job'
        if job.after is not None and (job.after not in calendar.jobs or job.after == name):
            others = [other for other in calendar.jobs if other != name]
            hint = nearest(job.after, others) or f"jobs: {', '.join(others) or 'no other'}"
            yield f"{pointer}/after", f'there is no other job "{job.after}"', hint


def is_day(text: str) -> bool:
    """Return whether a text is a day of one year or of every year.

    >>> is_day("2026-12-25"), is_day("02-29"), is_day("25.12.")
    (True, True, False)
    """
    try:
        date.fromisoformat(text if len(text) == 10 else f"2028-{text}")  # with a 29th of February
    except ValueError:
        return False
    return True


def problems_of_calendar(org: Organisation, agents: Mapping[str, Agent], config: Config) -> Iterator[Problem]:
    """Yield what is wrong with a calendar where it stands: who is asked, who asks, time zones."""
    calendar, asker = load_calendar(org), asker_in(agents, config)
    if calendar.jobs and asker is None:
        hint = "make one: lemming agents new calendar --model clock --read '*'"
        yield Problem(
            "nobody asks for these jobs: no agent has the clock for its model", CALENDAR_FILE, hint=hint
        )
    for name, job in calendar.jobs.items():
        pointer = f"/jobs/{name}"
        if job.cron is not None and (job.timezone or config.org.timezone) is None:
            hint = 'add "timezone" here, or for all in config/org.json'
            yield Problem(
                "a cron expression needs a time zone, and none is set",
                CALENDAR_FILE,
                pointer=f"{pointer}/cron",
                hint=hint,
            )
        if job.agent not in agents:
            hint = nearest_agent(job.agent, [*agents])
            yield Problem(
                f'there is no agent "{job.agent}"', CALENDAR_FILE, pointer=f"{pointer}/agent", hint=hint
            )
        elif asker is not None:
            for reader, author in ((job.agent, asker), (asker, job.agent)):
                if not agents[reader].may_read(author):
                    hint = f'add "{author}" to permissions.read_outboxes in agents/{reader}/resume.json'
                    yield Problem(
                        f"{reader} may not read {author}",
                        CALENDAR_FILE,
                        pointer=f"{pointer}/agent",
                        hint=hint,
                    )
