"""Validation of each `plan.json` against its organisation, for `lemming validate`."""

from __future__ import annotations

from collections.abc import Iterator

from lemming.capabilities.judges.judges_validation import validate_judge_in_file
from lemming.capabilities.plans.org_members import build_validation_context
from lemming.capabilities.plans.plan_format import is_planner, load_plan, plan_file
from lemming.capabilities.plans.plan_permissions import validate_permissions
from lemming.capabilities.plans.plan_rules import locate_problems, validate_plan
from lemming.ext import ConfigError, Problem
from lemming.kernel.agents import Agent
from lemming.kernel.files.stat_cache import path_exists
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation, OrgPath


def validate_agent_plan(base: OrgPath, agent: Agent, config: Config) -> Iterator[Problem]:
    """Yield problems of an agent's plan: of the file, the plan, and its permissions."""
    org, file = Organisation.from_path(base), plan_file(agent.name)
    if not is_planner(agent, config):
        if path_exists(f"{org.base}/{file}"):
            message = f'the plan has no effect: the model key of {agent.name} is "{agent.model.key}"'
            hint = f'set "model": {{"key": "plan"}} in agents/{agent.name}/resume.json, or remove the file'
            yield Problem(message, file, hint=hint, severity="warning")
        return
    try:
        document = load_plan(org, agent.name)
    except ConfigError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            hint = "write it; see its format with `lemming schema plan`"
            yield Problem(f"the plan of {agent.name} does not exist", file, hint=hint)
        else:
            yield from error.problems
        return
    yield from document.warnings
    context = build_validation_context(agent, config, org)
    problems = [*validate_plan(document.value), *validate_permissions(document.value, agent, context)]
    yield from locate_problems(problems, file, document.raw)
    for author, judge_settings, pointer in document.value.iter_judges():
        yield from validate_judge_in_file(base, agent, author, judge_settings, file, pointer, config)
