"""Who works in an organisation, as far as a plan has to know: what plans are held against."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lemming.capabilities.plans.allowed import Staff
from lemming.capabilities.plans.format import AgentPlan, is_planner, read_plan
from lemming.kernel.access.allowed_paths import resolve
from lemming.kernel.agents import Agent, Survey, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, PermissionDenied, ToolError
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.registry import not_imported
from lemming.kernel.providers import is_person
from lemming.kernel.tools import toolset_of
from lemming.kernel.tools.toolset import Toolset


def staff_for(agent: Agent, config: Config, org: Organisation, toolset: Toolset | None = None) -> Staff:
    """Return what a plan of this agent can be held against.

    A tool that is not known may be that of a plugin, which is not imported for a look.
    """
    survey = survey_agents(org)
    tools = (toolset or toolset_of(config.org, org)).of(agent.name)

    def why_refused(name: str) -> str:
        try:
            return tools.find(name).why_refused(agent, config.org)
        except ToolError as error:
            return error.message

    def gate_that_asks(name: str) -> str:
        where: dict[str, Any] = {"config/org.json": config.org, paths.resume_file(agent.name): agent}
        for file, settings in where.items():
            for place, gate in enumerate(settings.further.get("gates", ())):
                asks = (gate.at, gate.then) == ("call", "ask") and name in tools
                if asks and gate.concerns_tool(name, tools[name].tool_class):
                    return f"{file}#/gates/{place}"
        return ""

    def why_unreadable(file: str) -> str:
        try:
            resolve(agent, Path(org.base), file, "read", caller="plan")
        except PermissionDenied as error:
            return error.message
        return ""

    def plan_of(name: str) -> AgentPlan | None:
        try:
            return read_plan(org, name).value if name in survey.agents else None
        except ConfigError:
            return None

    def arguments_of(name: str) -> Mapping[str, Any] | None:
        try:
            return tools.find(name).parameters
        except ToolError:
            return None

    return Staff(
        agents=survey.agents,
        people=frozenset(_people(survey, config)),
        planners=frozenset(name for name, each in survey.agents.items() if is_planner(each, config)),
        tool_classes={name: tools[name].tool_class for name in tools},
        knows_all_tools=not not_imported(config.org.plugins),
        hint_for_tool=tools.hint_for,
        why_refused=why_refused,
        gate_that_asks=gate_that_asks,
        why_unreadable=why_unreadable,
        plan_of=plan_of,
        arguments_of=arguments_of,
    )


def _people(survey: Survey, config: Config) -> Iterator[str]:
    for name, agent in survey.agents.items():
        entry = config.models.get(agent.model.key)
        if entry is not None and is_person(entry.provider, config.org.plugins):
            yield name
