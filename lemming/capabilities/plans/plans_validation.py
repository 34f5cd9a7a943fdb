"""Validation of each `plan.json` against its organisation, for `lemming validate`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lemming.capabilities.judges.judges_validation import validate_judge_in_file
from lemming.capabilities.plans.plan_format import AgentPlan, is_planner, load_plan, plan_file
from lemming.capabilities.plans.plan_permissions import PlanValidationContext, validate_permissions
from lemming.capabilities.plans.plan_rules import locate_problems, validate_plan
from lemming.ext import AgentSubject, ConfigError, Problem, make_warning
from lemming.kernel.access.allowed_paths import resolve_path
from lemming.kernel.agents import Agent, Survey, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import PermissionDenied, ToolError
from lemming.kernel.files.stat_cache import path_exists
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.plugin_registry import find_unimported
from lemming.kernel.providers import is_person
from lemming.kernel.tools import get_toolset
from lemming.kernel.tools.toolset import Toolset


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
    context = build_validation_context(agent, config, org)
    problems = [*validate_plan(document.value), *validate_permissions(document.value, agent, context)]
    yield from locate_problems(problems, file, document.raw)
    for author, judge_settings, pointer in document.value.iter_judges():
        yield from validate_judge_in_file(org, agent, author, judge_settings, file, pointer, config)


# --- facts about an organisation for the validation of plans -------------------------------------


def build_validation_context(
    agent: Agent, config: Config, org: Organisation, toolset: Toolset | None = None
) -> PlanValidationContext:
    """Return the context for validating a plan of this agent.

    An unknown tool may belong to a plugin, which is not imported for validation.
    """
    survey = survey_agents(org)
    tools = (toolset or get_toolset(config.org, org)).for_agent(agent.name)

    def refusal_reason(name: str) -> str:
        try:
            return tools.find(name).refusal_reason(agent, config.org)
        except ToolError as error:
            return error.message

    def find_approval_gate(name: str) -> str:
        sources: dict[str, Any] = {"config/org.json": config.org, paths.resume_file(agent.name): agent}
        for file, settings in sources.items():
            for index, gate in enumerate(settings.extensions.get("gates", ())):
                requires_approval = (gate.at, gate.then) == ("call", "ask") and name in tools
                if requires_approval and gate.concerns_tool(name, tools[name].tool_class):
                    return f"{file}#/gates/{index}"
        return ""

    def unreadable_reason(file: str) -> str:
        try:
            resolve_path(agent, Path(org.base), file, "read", caller="plan")
        except PermissionDenied as error:
            return error.message
        return ""

    def find_plan(name: str) -> AgentPlan | None:
        try:
            return load_plan(org, name).value if name in survey.agents else None
        except ConfigError:
            return None

    def get_parameters(name: str) -> Mapping[str, Any] | None:
        try:
            return tools.find(name).parameters
        except ToolError:
            return None

    return PlanValidationContext(
        agents=survey.agents,
        people=frozenset(_iter_people(survey, config)),
        planners=frozenset(name for name, candidate in survey.agents.items() if is_planner(candidate, config)),
        tool_classes={name: tools[name].tool_class for name in tools},
        knows_all_tools=not find_unimported(config.org.plugins),
        hint_for_tool=tools.suggest_tools,
        refusal_reason=refusal_reason,
        find_approval_gate=find_approval_gate,
        unreadable_reason=unreadable_reason,
        find_plan=find_plan,
        find_parameters=get_parameters,
    )


def _iter_people(survey: Survey, config: Config) -> Iterator[str]:
    for name, agent in survey.agents.items():
        entry = config.models.get(agent.model.key)
        if entry is not None and is_person(entry.provider, config.org.plugins):
            yield name
