"""`lemming validate`: say everything that is wrong with the files people write."""

from __future__ import annotations

from typing import Annotated

import typer

from lemming.base.errors import ConfigError, Problem
from lemming.commands.failures import tell_problem
from lemming.commands.options import AnyAgentName, Here, Newest, option, require_folder
from lemming.commands.screen import bar, counted, tell
from lemming.commands.trust import load_settings
from lemming.facts.checklist.check import CheckScope, checks_of, run


def validate(
    here: Here,
    agent: AnyAgentName = None,
    every: Annotated[bool, option("--all", "Open every entry, however many there are.")] = False,
    newest: Newest = None,
) -> None:
    """Check resumes, settings, `tick.json`, outboxes, memories and evals, and say all that is wrong.

    Of entries the newest 3,000 are opened, the same number of each outbox, but never fewer than 3; if that is
    not all, the last line says so. Of requests that are open it says which permission is missing for them to
    reach their holder, and for the answer to come back. Exit status 3 says that there are errors; warnings
    alone are 0.

    \b
    Examples:
      lemming validate
      lemming validate editor
      lemming validate --all
      lemming validate --json | jq -r '.file + ":" + (.line | tostring)'
    """
    base = here.org
    if agent is not None:
        require_folder(base, agent)
    with bar("validating") as steps:
        scope = CheckScope(base, load_settings, agent=agent, newest=newest, every=every, steps=steps)
        problems = problems_in(scope)
    for problem in problems:
        if not here.shows("problem", problem.as_json()):
            tell_problem(problem, base)
    errors = sum(problem.severity == "error" for problem in problems)
    if not here.as_json:
        warnings = len(problems) - errors
        found = [counted(errors, "error")] * bool(errors) + [counted(warnings, "warning")] * bool(warnings)
        tell(", ".join(found) or "everything is in order")
        tell_what_was_left(scope)
        tell("next: mend these, and `lemming validate` again" if errors else "next: `lemming run-once`")
    if errors:
        raise typer.Exit(ConfigError.exit_status)


def problems_in(scope: CheckScope) -> list[Problem]:
    """Return what is wrong with the files people write: settings first, then each agent's."""
    found = [problem for _, found in run(checks_of("validate", scope), scope) for problem in found]
    return sorted(found, key=lambda it: it.file.split("/")[1] if it.file.startswith("agents/") else "")


def tell_what_was_left(scope: CheckScope) -> None:
    """Say how many entries were not opened, and how they are."""
    if scope.entries_left:
        older = counted(scope.entries_left, "older entry", "older entries")
        tell(f"not opened: {older} (all but the newest {scope.entries_of_each} of each outbox); --all does")
