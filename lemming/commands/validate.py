"""`lemming validate`: say everything that is wrong with the files people write."""

from __future__ import annotations

from typing import Annotated

import typer

from lemming.agents import agent_folders
from lemming.base.errors import ConfigError, CorruptState, Problem
from lemming.commands.failures import tell_problem
from lemming.commands.options import AnyAgentName, AsJson, option
from lemming.commands.org import find_org, require_folder
from lemming.commands.screen import counted, show_json, tell
from lemming.commands.trust import load_settings
from lemming.facts.capabilities import capability_problems_of_org
from lemming.facts.case_checks import problems_of_cases
from lemming.facts.checks import Opened, problems_of_agents, problems_of_config, share_of_each
from lemming.facts.structure_checks import problems_of_structure
from lemming.org.config import Config
from lemming.org.organisation import OrgPath
from lemming.tick.counter import load_tick


def validate(
    ctx: typer.Context,
    agent: AnyAgentName = None,
    every: Annotated[bool, option("--all", "Open every entry, however many there are.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check resumes, settings, `tick.json`, outboxes, memories and evals, and say all that is wrong.

    Of entries the newest 5,000 are opened, the same number of each outbox, but never fewer than 5; if that is
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
    base = find_org(ctx)
    if agent is not None:
        require_folder(base, agent)
    outboxes = 1 if agent is not None else len(agent_folders(base))
    opened = Opened(None if every else share_of_each(outboxes))
    problems = problems_in(base, agent, opened)
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
        if opened.left:
            older = counted(opened.left, "older entry", "older entries")
            tell(f"not opened: {older} (all but the newest {opened.newest} of each outbox); --all does")
        tell("next: mend these, and `lemming validate` again" if errors else "next: `lemming run-once`")
    if errors:
        raise typer.Exit(ConfigError.exit_status)


def problems_in(base: OrgPath, agent: str | None = None, opened: Opened | None = None) -> list[Problem]:
    """Return all that is wrong with the files people write, or with those of one agent."""
    opened = opened or Opened(share_of_each(1 if agent is not None else len(agent_folders(base))))
    config: Config | None = None
    try:
        config = load_settings(base)
        problems = list(problems_of_config(base, config)) if agent is None else []
    except ConfigError as error:
        problems = list(error.problems)
    found = [*problems, *_about_counter(base, agent), *problems_of_agents(base, config, agent, opened)]
    if agent is None:
        found += problems_of_cases(base)
    if config:
        found += capability_problems_of_org(base, config, agent) if agent else []
        found += problems_of_structure(base, config, agent)
    return found


def _about_counter(base: OrgPath, agent: str | None) -> list[Problem]:
    """Return what is wrong with `tick.json`; it is no single agent's."""
    try:
        if agent is None:
            load_tick(base)
    except CorruptState as error:
        return [Problem(error.message, error.where, hint=error.hint, code=error.code)]
    return []
