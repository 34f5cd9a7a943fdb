"""Agents exposed to untrusted senders: outside text reaches the agent, and no gate asks before an acting
call.

Text read by a model may be instructions, and the model must be assumed to follow the text:
`docs/security.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from lemming.capabilities.gates.gate_settings import get_gates
from lemming.ext import Problem
from lemming.kernel.agents import Agent, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.name_patterns import is_any_match
from lemming.kernel.org.config import Config, OrgSettings
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.providers import is_channel
from lemming.kernel.tick.turn_dependencies import compute_footprint, paths_overlap
from lemming.kernel.tools import Tool, get_toolset
from lemming.kernel.tools.toolset import Toolset

_PATTERN = "*"


class InformationFlow(NamedTuple):
    """Possible flow from one agent to another: by entries, or by the file at `path` if set."""

    author: str
    reader: str
    path: str = ""


class FlowGraph:
    """Possible information flows of an organisation, one per pair of agents."""

    def __init__(self, org: Organisation, settings: OrgSettings, agents: Mapping[str, Agent], toolset: Toolset) -> None:
        self._org, self._agents = org, agents
        self._touch = {name: compute_footprint(agent, settings, toolset, org) for name, agent in agents.items()}

    def outgoing_flows(self, author: str) -> list[InformationFlow]:
        """Return the flows from one agent to other agents."""
        readers = (reader for reader in self._agents if reader != author)
        return [flow for reader in readers if (flow := self._find_flow(author, reader))]

    def _find_flow(self, author: str, reader: str) -> InformationFlow | None:
        if self._agents[reader].may_read(author):
            return InformationFlow(author, reader)
        write_places, read_places = self._touch[author].writes, self._touch[reader].reads
        shared_places = (
            max(read_place, written_place, key=len)
            for read_place in read_places
            for written_place in write_places
            if _may_overlap(read_place, written_place)
        )
        shared = next(shared_places, None)
        return InformationFlow(author, reader, self._display_path(shared)) if shared is not None else None

    def _display_path(self, components: Sequence[str]) -> str:
        root = Path(self._org.base).resolve()
        path = Path("/", *components)
        return str(path.relative_to(root)) if path.is_relative_to(root) and path != root else str(path)


def _may_overlap(components: Sequence[str], other: Sequence[str]) -> bool:
    """Return True if two paths may be the same file.

    The pattern for all resumes matches no particular file.
    """
    return _PATTERN not in components and _PATTERN not in other and paths_overlap((*components,), (*other,))


OUTSIDE_TOOLS = ("mcp.*", "http_*")
"""Tools that return untrusted text unless the settings say otherwise."""
ACTING_CLASSES = ("send", "execute", "administer")
_FETCH_TOOL = "http_get"  # from hosts that the settings name
_DECISIVE_FINDINGS = ("", "args", "check")
"""Findings of gates that decide every call they concern."""
Tools = Mapping[str, list[Tool]]


def validate_untrusted_access(base: OrgPath, config: Config, only: str | None = None) -> Iterator[Problem]:
    """Yield a warning for each agent exposed to untrusted senders, with the path of the text."""
    org = Organisation.from_path(base)
    agents = {
        name: agent_entry
        for name, agent_entry in survey_agents(org).agents.items()
        if config.has_model_turns(agent_entry)
    }
    toolset, patterns = get_toolset(config.org, org), _outside_content_tools(config)
    returns_outside_text = cache(lambda tool: is_any_match(tool, patterns))  # the same few tools for each agent
    tools = {
        name: [
            tool
            for tool in toolset.for_agent(name).values()
            if (_is_acting(tool) or returns_outside_text(tool.name)) and not tool.refusal_reason(agent, config.org)
        ]
        for name, agent in agents.items()
    }
    outside_tools = {name: [tool for tool in tools[name] if returns_outside_text(tool.name)] for name in agents}
    exposures = _untrusted_paths(org, config, agents, outside_tools)
    for name, agent in agents.items():
        if only in (None, name):
            acting_tools = [
                tool
                for tool in tools[name]
                if _is_acting(tool)
                and (name in exposures or any(other is not tool for other in outside_tools[name]))
                and not _is_gated(tool, agent, config)
            ]
            if acting_tools:
                yield _make_warning(
                    agent, exposures.get(name) or _describe_exposure(name, outside_tools[name]), acting_tools
                )


def _make_warning(agent: Agent, exposure: str, acting: list[Tool]) -> Problem:
    tool_list = ", ".join(f"{tool.name} ({tool.tool_class})" for tool in acting)
    classes = '", "'.join(dict.fromkeys(tool.tool_class for tool in acting))
    return Problem(
        f"untrusted senders may make {agent.name} call {tool_list}: {exposure}, and no gate asks or blocks",
        paths.resume_file(agent.name),
        pointer="/permissions/tools",
        hint=f'add {{"at": "call", "class": ["{classes}"], "then": "ask"}} to the gates in {paths.ORG_FILE}',
        severity="warning",
    )


def _untrusted_paths(
    org: Organisation, config: Config, agents: Mapping[str, Agent], outside_tools: Tools
) -> dict[str, str]:
    """Return the agents reached by outside text through a channel or through other agents, each with a path."""
    entries = {
        name: config.models.get(entry_or_agent.model.key) for name, entry_or_agent in survey_agents(org).agents.items()
    }
    plugins = config.org.plugins
    channels = [
        name
        for name, entry_or_agent in entries.items()
        if entry_or_agent and is_channel(entry_or_agent.provider, plugins)
    ]
    exposures = {
        name: f"{name} reads {channel}, a channel"
        for name, agent in agents.items()
        for channel in reversed(channels)
        if agent.may_read(channel)
    }
    exposed_names = [name for name in agents if name in exposures or outside_tools[name]]
    if not exposed_names:
        return {}
    flows = FlowGraph(org, config.org, agents, get_toolset(config.org, org))
    for author in exposed_names:  # grows during the loop
        for flow in flows.outgoing_flows(author):
            name = flow.reader
            if name not in exposures:
                exposures[name] = (
                    f"{_describe_path(flow)}, and {exposures.get(author) or _describe_exposure(author, outside_tools[author])}"
                )
                exposed_names += [name] if name not in exposed_names else []
    return exposures


def _describe_exposure(name: str, tools: list[Tool]) -> str:
    return f"{name} reads results of {', '.join(tool.name for tool in tools)}"


def _outside_content_tools(config: Config) -> list[str]:
    trust = config.org.extensions.get("trust")
    if trust is None:
        return [*OUTSIDE_TOOLS]
    from lemming.capabilities.trust.trust_settings import TOOL_LABELS  # imported only with trust tracking

    return [pattern for pattern, label in {**TOOL_LABELS, **trust.tools}.items() if label == trust.order[0]]


def _describe_path(flow: InformationFlow) -> str:
    if flow.path:
        return f"{flow.reader} reads {flow.path}, which {flow.author} may write"
    return f"{flow.reader} reads {flow.author}"


def _is_acting(tool: Tool) -> bool:
    return tool.tool_class in ACTING_CLASSES and tool.name != _FETCH_TOOL


def _is_gated(tool: Tool, agent: Agent, config: Config) -> bool:
    for gate in (*get_gates(config.org), *get_gates(agent)):
        if gate.at == "call" and gate.concerns_tool(tool.name, tool.tool_class):
            if gate.then in ("ask", "block", "stop") and gate.finding_key in _DECISIVE_FINDINGS:
                return True
            if gate.then == "pass" and gate.when is None and not gate.finding_key:
                return False
    return False
