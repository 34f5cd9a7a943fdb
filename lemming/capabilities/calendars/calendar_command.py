"""Adding a job to the calendar from a command: `lemming send --every`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import count

from lemming.capabilities.calendars.calendar_file import (
    CALENDAR_FILE,
    CalendarJob,
    find_calendar_problems,
    load_calendar,
)
from lemming.commands.terminal import print_data, print_notice, print_warning
from lemming.ext import CheckSubject
from lemming.kernel.base.clock import SystemClock
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import dump_pretty, parse
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.libraries.cron_expressions import describe_cron, find_cron_error, next_occurrence
from lemming.libraries.everyday_times import format_moment
from lemming.libraries.settings_edits import edit_file

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
    """Return an unused job name made of the first words of the text."""
    tokens = re.findall(r"[a-z0-9]+", text.lower())[:NAME_WORDS]
    name = "-".join(tokens) or "job"
    return next(status for number in count(1) if (status := name if number == 1 else f"{name}-{number}") not in jobs)
