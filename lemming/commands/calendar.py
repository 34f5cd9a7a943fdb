"""`lemming calendar`: the jobs, when each comes up next, and what became of it last."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from lemming.capabilities.calendars.calendar import (
    CALENDAR_FILE,
    LIMIT_BYTES,
    Job,
    asker_in,
    load_calendar,
    problems_of_calendar,
)
from lemming.capabilities.calendars.coming import jobs_now
from lemming.commands.options import Here, Limit
from lemming.commands.screen import show, tell
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.clock import SystemClock
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import parse, pretty
from lemming.kernel.base.times.cron import explained, next_occurrence, why_no_cron
from lemming.kernel.base.times.words import moment_in_words
from lemming.kernel.files import fs
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation, OrgPath

NAME_WORDS = 4
MAKE_ONE = "lemming agents new calendar --model clock --read '*'"

COLUMNS = {
    "JOB": "name", "AGENT": lambda it: it.job.agent, "NEXT": "coming", "LAST": "outcome", "WHEN": "when"
}  # fmt: skip


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
    kept = load_calendar(org)  # raises where it is broken: nothing is written over then
    name = _name_for(text, kept.jobs)
    plain = _plain(base)
    jobs = {**plain.get("jobs", {}), name: {"agent": agent, "text": text, "cron": cron}}
    fs.publish(Path(base), CALENDAR_FILE, pretty({**plain, "jobs": jobs}))
    show(CALENDAR_FILE)
    moment = next_occurrence(cron, config.org.timezone, SystemClock().now())
    first = moment_in_words(moment) if moment else "never"
    tell(f'job "{name}": {agent} is asked {explained(cron)[:1].lower()}{explained(cron)[1:]}; first {first}')
    for problem in problems_of_calendar(org, survey_agents(org).agents, config):
        tell(f"warning: {problem}", style="yellow")


def _plain(base: OrgPath) -> dict[str, Any]:
    try:
        plain = parse(fs.read_bytes(f"{base}/{CALENDAR_FILE}", LIMIT_BYTES), allow_bom=True)
    except FileNotFoundError:
        return {}
    return plain if isinstance(plain, dict) else {}


def _name_for(text: str, jobs: Mapping[str, Job]) -> str:
    """Return a name for a job that no other has, from the first words of its text."""
    words = re.findall(r"[a-z0-9]+", text.lower())[:NAME_WORDS]
    name = "-".join(words) or "job"
    return next(it for number in count(1) if (it := name if number == 1 else f"{name}-{number}") not in jobs)
