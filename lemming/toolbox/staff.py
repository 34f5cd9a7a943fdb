"""`list_agents` and `create_agent`: who works here, and hiring."""

from __future__ import annotations

import os
from typing import Annotated, Any

from pydantic import Field

from lemming import paths
from lemming.agents import RESUME_LIMIT_BYTES, Agent, AgentCredits, survey_agents
from lemming.config import credits_of, load_config
from lemming.documents import read_text
from lemming.effects import FileEffect
from lemming.errors import ConfigError, PermissionDenied, ToolError
from lemming.jsontext import parse, pretty
from lemming.tools import EngineTool, ToolContext, ToolRegistry, ToolResult

NOT_PASSED_ON = "create_agent"


class ListAgents(EngineTool):
    """Lists the organisation's agents."""

    name = "list_agents"
    description = "List all agents: name and title."
    always_allowed = True

    def plan(self, context: ToolContext) -> ToolResult:
        """Return one line an agent, sorted by name. Why a resume is broken is for people, not for agents."""
        survey = survey_agents(context.base)
        titles = {name: agent.title for name, agent in survey.agents.items()}
        titles |= dict.fromkeys(survey.broken, "(out of service: its resume is broken)")
        titles |= _staged_titles(context)
        return ToolResult(True, "\n".join(_line(name, title) for name, title in sorted(titles.items())))


class CreateAgent(EngineTool):
    """Writes the resume of a new agent, which can do no more than its creator."""

    name = "create_agent"
    description = "Create an agent. It can get no tool and read no outbox that you have not."

    def plan(
        self,
        context: ToolContext,
        name: Annotated[str, Field(description="A new name: a-z, 0-9, _ and -.")],
        title: Annotated[str, Field(description="What the agent is called.")],
        instructions: Annotated[str, Field(min_length=1, description="What the agent is to be and do.")],
        read_outboxes: Annotated[
            list[str], Field(description='Agents whose entries it reads; "*": all.')
        ] = [],  # noqa: B006 - copied by the check, never changed
        tools: Annotated[list[str], Field(description="Tools it may call, out of yours.")] = [],  # noqa: B006
        run_every_n_ticks: Annotated[int, Field(ge=1, description="It runs every so many ticks.")] = 1,
        phase_offset: Annotated[int, Field(description="Shifts its runs by so many ticks.")] = 0,
        model_key: Annotated[str, Field(description="A key of config/models.json.")] = "default",
    ) -> ToolResult:
        """Return the effect that writes the resume."""
        _refuse_name(context, name)
        _refuse_more_than_own(context.agent, tools, read_outboxes)
        resume = {
            "name": name,
            "title": title,
            "model": {"key": model_key},
            "permissions": {
                "read_outboxes": read_outboxes,
                "tools": tools,
                "file_access": context.agent.plain["permissions"]["file_access"],
            },
            "schedule": {"run_every_n_ticks": run_every_n_ticks, "phase_offset": phase_offset},
            "instructions": instructions,
            "credits": _credits(context, model_key),
        }
        effect = FileEffect(paths.resume_file(name), _checked(resume))
        return ToolResult(
            True, f"created {name}; it takes its first turn when due, not in this tick", (effect,)
        )


def _line(name: str, title: str) -> str:
    return f"{name}: {' '.join(title.split())}" if title else name


def _staged_titles(context: ToolContext) -> dict[str, str]:
    resumes = {
        place.split("/")[1]: parse(content)
        for place, content in context.staged.items()
        if place.startswith("agents/") and place.endswith("/resume.json") and place.count("/") == 2
    }
    return {name: resume["title"] for name, resume in resumes.items()}


def _refuse_name(context: ToolContext, name: str) -> None:
    try:
        folder = paths.agent_folder(name)
    except ValueError as error:
        raise ToolError(f"create_agent: {error}") from error
    if name == "human":
        raise PermissionDenied('create_agent: "human" is the person; refused by the engine')
    is_staged = any(place.startswith(f"{folder}/") for place in context.staged)
    if is_staged or os.path.lexists(context.base / folder):
        raise ToolError(f'create_agent: there is an agent "{name}" already')


def _refuse_more_than_own(creator: Agent, tools: list[str], read_outboxes: list[str]) -> None:
    """Raise if the new agent would get more than its creator has. `create_agent` is never passed on."""
    own = set(creator.permissions.tools) - {NOT_PASSED_ON}
    free = {name for name in tools if name in ToolRegistry.names() and ToolRegistry.get(name).always_allowed}
    if too_much := sorted(set(tools) - own - free):
        raise PermissionDenied(
            f"create_agent: {', '.join(too_much)} refused by your permissions.tools",
            hint=f"you can pass on: {', '.join(sorted(own)) or 'none'}",
        )
    if unread := [name for name in read_outboxes if name != creator.name and not creator.may_read(name)]:
        raise PermissionDenied(f"create_agent: {', '.join(unread)} refused by your permissions.read_outboxes")


def _credits(context: ToolContext, model_key: str) -> dict[str, Any]:
    """Return the creator's own limits for the new agent; raise `UnknownModel` for a key that is none."""
    config = load_config(context.base)
    config.model(model_key)
    limits: AgentCredits = credits_of(config, context.agent.name, context.agent.credits)
    return {"max_credits": limits.max_credits, "soft_cap": limits.soft_cap}


def _checked(resume: dict[str, Any]) -> bytes:
    """Return the resume's bytes, which `load_agent` will accept; raise `ToolError` otherwise."""
    content = pretty(resume)
    try:
        read_text(content, paths.resume_file(resume["name"]), Agent, limit_bytes=RESUME_LIMIT_BYTES)
    except ConfigError as error:
        raise ToolError(f"create_agent: {error}") from error
    return content
