"""`lemming validate`: say everything that is wrong with the files people write."""

from __future__ import annotations

from pathlib import Path

import typer

from lemming.commands.failures import tell_problem
from lemming.commands.options import AnyAgentName, AsJson
from lemming.commands.org import find_org, require_folder
from lemming.commands.screen import counted, show_json, tell
from lemming.commands.trust import load_settings
from lemming.errors import ConfigError, CorruptState, Problem
from lemming.inspect.checks import problems_of_agents, problems_of_config
from lemming.tick.counter import load_tick


def validate(ctx: typer.Context, agent: AnyAgentName = None, as_json: AsJson = False) -> None:
    """Check resumes, settings, `tick.json`, outboxes and memories, and say all that is wrong.

    Exit status 3 says that there are errors; warnings alone are 0.

    \b
    Examples:
      lemming validate
      lemming validate editor
      lemming validate --json | jq -r '.file + ":" + (.line | tostring)'
    """
    base = find_org(ctx)
    if agent is not None:
        require_folder(base, agent)
    problems = _problems(base, agent)
    for problem in problems:
        if as_json:
            show_json("problem", problem.as_json())
        else:
            tell_problem(problem, base)
    errors = sum(problem.severity == "error" for problem in problems)
    if not as_json:
        warnings = len(problems) - errors
        found = [counted(errors, "error")] * bool(errors) + [counted(warnings, "warning")] * bool(warnings)
        tell(", ".join(found) or "everything is in order")
        tell("next: mend these, and `lemming validate` again" if errors else "next: `lemming run-once`")
    if errors:
        raise typer.Exit(ConfigError.exit_status)


def _problems(base: Path, agent: str | None) -> list[Problem]:
    try:
        config = load_settings(base)
    except ConfigError as error:
        return [*error.problems, *_about_counter(base, agent), *problems_of_agents(base, None, agent)]
    of_config = problems_of_config(base, config) if agent is None else ()
    return [*of_config, *_about_counter(base, agent), *problems_of_agents(base, config, agent)]


def _about_counter(base: Path, agent: str | None) -> list[Problem]:
    """Return what is wrong with `tick.json`; it is no single agent's."""
    try:
        if agent is None:
            load_tick(base)
    except CorruptState as error:
        return [Problem(error.message, error.where, hint=error.hint, code=error.code)]
    return []
