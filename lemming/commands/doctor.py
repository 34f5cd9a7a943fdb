"""`lemming doctor`: is this machine, and this organisation, fit to run?"""

from __future__ import annotations

from typing import Annotated

import typer

from lemming.base.errors import NotAnOrg, Problem
from lemming.commands.options import Here, option
from lemming.commands.screen import Style, counted, one_line, painted, show
from lemming.commands.trust import load_settings
from lemming.facts.checklist.check import CheckScope, checks_of, run
from lemming.facts.checklist.standing import Trouble

LEVELS = {"note": "ok", "warning": "warn", "error": "fail"}
_COLOURS: dict[str, Style] = {"note": "green", "warning": "yellow", "error": "red"}


def doctor(
    here: Here,
    connect: Annotated[
        bool, option("--connect", "Connect to the cluster at executor_address, which may run code here.")
    ] = False,
) -> None:
    """Check this machine and this organisation, and say how to fix what is not well.

    Nothing is called, repaired or printed that is secret, and nothing is connected to without --connect. Exit
    status 1 says that something failed.

    \b
    Example:
      lemming doctor --json | jq -r 'select(.level != "ok") | .about + ": " + .fix'
    """
    try:
        scope = CheckScope(here.org, load_settings, connect=connect)
    except NotAnOrg as error:
        scope = CheckScope(error)
    levels = []
    for check, problems in run(checks_of("doctor", scope), scope, has_errors_told=True):
        for problem in problems:
            levels.append(problem.severity)
            if not here.shows("finding", as_finding(check.name, problem)):
                show_finding(check.name, problem)
    failed = levels.count("error")
    if not here.as_json:
        warned = counted(levels.count("warning"), "warning")
        show(f"{counted(len(levels), 'check')}: {failed} failed, {warned}")
    if failed:
        raise typer.Exit(1)


def as_finding(name: str, problem: Problem) -> dict[str, str]:
    """Return what a check found as the object that `--json` prints."""
    place = f"{problem.about}: " if isinstance(problem, Trouble) and problem.about != name else ""
    text = f"{place}{problem.message}"
    return {"level": LEVELS[problem.severity], "about": name, "text": text, "fix": problem.hint}


def show_finding(name: str, problem: Problem) -> None:
    """Print what a check found, and what to do about it."""
    said = as_finding(name, problem)
    level = painted(f"{said['level']:<4}", _COLOURS[problem.severity])
    show(f"{level}  {name:<11} {one_line(said['text'], 400)}")
    if problem.hint and problem.severity != "note":
        show(f"{'':<17} fix: {one_line(problem.hint, 400)}")
