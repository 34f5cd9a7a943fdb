"""The screen of tools: their origin and the agents that may call them."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from lemming.kernel.agents import Agent, load_agent, require_agent_folder, survey_agents
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tools import SHIPPED, Tool, get_toolset
from lemming.kernel.tools.toolset import Toolset
from lemming.queries.screens.screen import Column, Parameter, Screen
from lemming.queries.tick_preview import load_inspection_settings


class ToolRow(NamedTuple):
    """A tool, and the agents that may call it."""

    tool: Tool
    callers: list[str]


def list_tools(
    org: Organisation,
    agent: Annotated[str | None, Parameter("--agent AGENT", "Agent whose permissions apply.")] = None,
) -> list[ToolRow]:
    """List tools, their origin and the agents that may call them. No tool file is loaded."""
    return list_tool_rows(org, load_inspection_settings(org).org, agent)


def list_tool_rows(org: Organisation, settings: OrgSettings, agent: str | None) -> list[ToolRow]:
    """Return all tools with the agents allowed to call each; with `agent`, only the tools allowed to the agent."""
    agents = survey_agents(org).agents
    if agent:
        require_agent_folder(org, agent)
    selected_agents = [load_agent(org, agent)] if agent else list(agents.values())
    toolset = get_toolset(settings, org)
    tools = _collect_tools(toolset, [agent] if agent else list(agents))
    rows = [
        ToolRow(tool, [other.name for other in selected_agents if can_call(tool, other, toolset, settings)])
        for tool in tools
    ]
    return [row for row in rows if row.callers or not agent]


def _collect_tools(toolset: Toolset, agents: list[str]) -> list[Tool]:
    """Return the shared tools and the tools of these agents, sorted by name."""
    tools = {id(tool): tool for tool in toolset.values()}
    for name in agents:
        agent_tools = toolset.for_agent(name)
        tools.update({id(agent_tools[key]): agent_tools[key] for key in agent_tools if key not in toolset})
    return sorted(tools.values(), key=lambda tool: (tool.name, tool.origin))


def can_call(tool: Tool, agent: Agent, toolset: Toolset, settings: OrgSettings) -> bool:
    """Return True if an agent has this tool and may call it."""
    agent_tool = toolset.for_agent(agent.name).get(tool.name)
    is_same = agent_tool is not None and agent_tool.origin == tool.origin
    return is_same and not tool.refusal_reason(agent, settings)


def format_origin(tool: Tool) -> str:
    """Return the place where a tool comes from."""
    return "LeMMing" if tool.name in SHIPPED else tool.origin


TOOLS = Screen(
    "tools",
    kind="tool",
    title="Tools",
    command="tools list",
    query=list_tools,
    row=ToolRow,
    columns=(
        Column("tool", "TOOL", "Name of the tool.", path="tool.name"),
        Column("class", "CLASS", "Tool class, which gates can ask about.", str, path="tool.tool_class"),
        Column("from", "SOURCE", "Place where the tool comes from.", str, value=lambda row: format_origin(row.tool)),
        Column("agents", "AGENTS", "Agents that may call it.", path="callers", text=lambda row: ", ".join(row.callers)),
        Column("description", "DESCRIPTION", "Description that models read.", path="tool.description"),
        Column("repeatable", about="True if a call may be repeated after a crash.", path="tool.repeatable"),
        Column("parallel", about="True if calls of one reply run in parallel.", path="tool.parallel"),
        Column("timeout_s", about="Time limit of a call in seconds, or null for the setting.", path="tool.timeout_s"),
        Column("parameters", about="JSON Schema of the arguments.", type=dict[str, Any], path="tool.parameters"),
    ),
)  # fmt: skip
