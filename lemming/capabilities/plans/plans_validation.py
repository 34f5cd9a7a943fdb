"""Validation of each `plan.json` against its organisation, for `lemming validate`."""

from __future__ import annotations

from collections.abc import Iterator

from lemming.capabilities.judges.judges_validation import validate_judge_in_file
from lemming.capabilities.plans.plan_format import is_planner, load_plan, plan_file
from lemming.capabilities.plans.plan_permissions import PlanValidationContext, validate_permissions
from lemming.capabilities.plans.plan_rules import locate_problems, validate_plan
from lemming.ext import AgentSubject, ConfigError, Problem, make_warning
from lemming.kernel.files.stat_cache import path_exists


def find_plan_problems(subject: AgentSubject) -> Iterator[Problem]:
    """Yield problems of an agent's plan: of the file, the plan, and its permissions."""
    org, agent, config = subject.org, subject.agent, subject.config
    file = plan_file(agent.name)
    if not is_planner(agent, config):
        if path_exists(f"{org.base}/{file}"):
            message = f'the plan has no effect: the model key of {agent.name} is "{agent.model.key}"'
            hint = f'set "model": {{"key": "plan"}} in agents/{agent.name}/resume.json, or remove the file'
            yield make_warning(message, hint=hint, file=file)
        return
    try:
        document = load_plan(org, agent.name)
    except ConfigError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            hint = "write it; see its format with `lemming export schema plan`"
            yield Problem(f"the plan of {agent.name} does not exist", file, hint=hint)
        else:
            yield from error.problems
        return
    yield from document.warnings
    context = PlanValidationContext(agent, config, org)
    problems = [*validate_plan(document.value), *validate_permissions(document.value, agent, context)]
    yield from locate_problems(problems, file, document.raw)
    for author, judge_settings, pointer in document.value.iter_judges():
        yield from validate_judge_in_file(org, agent, author, judge_settings, file, pointer, config)
