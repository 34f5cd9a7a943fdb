"""Agents exposed to untrusted senders: outside text reaches the agent, and no gate asks before acting calls.

Text read by a model may be instructions, and the model must be assumed to follow the text: `docs/security.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from lemming.capabilities.gates.gate_settings import get_gates
from lemming.ext import Problem
from lemming.kernel.agents import Agent, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.name_patterns import is_any_match
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.tools import Tool, get_toolset
from lemming.kernel.tools.toolset import Toolset
from lemming.operations.turns.turn_dependencies import compute_footprint, paths_overlap

OUTSIDE_TOOLS = ("mcp.*", "http_*")
"""Tools that return untrusted text unless the settings say otherwise."""
ACTING_CLASSES = ("send", "execute", "administer")
_FETCH_TOOL = "http_get"  # from hosts that the settings name
_DECISIVE_FINDINGS = ("", "args", "check")
"""Findings of gates that decide every call they concern."""
_PATTERN = "*"


def validate_untrusted_access(base: OrgPath, config: Config, only: str | None = None) -> Iterator[Problem]:
    """Yield a warning for each agent exposed to untrusted senders, with the path of the text."""
    org = Organisation.from_path(base)
    survey = survey_agents(org)
    agents = {name: agent for name, agent in survey.agents.items() if config.has_model_turns(agent)}
    toolset, patterns = get_toolset(config.org, org), _outside_content_tools(config)
    returns_outside_text = cache(lambda tool: is_any_match(tool, patterns))  # the same few tools for each agent
    tools = {
        name: [
            tool
            for tool in toolset.allowed_tools(agent, config.org).values()
            if _is_acting(tool) or returns_outside_text(tool.name)
        ]
        for name, agent in agents.items()
    }
    outside_tools = {name: [tool for tool in tools[name] if returns_outside_text(tool.name)] for name in agents}
    sources = {
        name: f"{name} reads results of {', '.join(tool.name for tool in read_tools)}"
        for name, read_tools in outside_tools.items()
        if read_tools
    }
    channels = [name for name, agent in survey.agents.items() if config.is_channel(agent)]
    exposures = _trace_exposures(org, config, agents, toolset, channels, sources)
    for name, agent in agents.items():
        acting_tools = [
            tool
            for tool in tools[name]
            if _is_acting(tool)
            and (name in exposures or any(other is not tool for other in outside_tools[name]))
            and not _is_gated(tool, agent, config)
        ]
        if acting_tools and only in (None, name):
            yield _make_warning(agent, exposures.get(name) or sources[name], acting_tools)


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


def _trace_exposures(
    org: Organisation,
    config: Config,
    agents: Mapping[str, Agent],
    toolset: Toolset,
    channels: Sequence[str],
    sources: Mapping[str, str],
) -> dict[str, str]:
    """Return the agents reached by outside text through a channel or through other agents, each with a path.

    `sources`: the agents whose own tools return outside text, each with a description.
    """
    exposures: dict[str, str] = {}
    for name, agent in agents.items():
        if channel := next(filter(agent.may_read, channels), ""):
            exposures[name] = f"{name} reads {channel}, a channel"
    exposed_names = [name for name in agents if name in exposures or name in sources]
    if not exposed_names:
        return {}
    footprints = {name: compute_footprint(agent, config.org, toolset, org) for name, agent in agents.items()}

    def describe_flow(author: str, reader: str) -> str:
        """Return the way from one agent to another, by entries or by a file, or an empty text."""
        if agents[reader].may_read(author):
            return f"{reader} reads {author}"
        for read_path in footprints[reader].reads:
            for written_path in footprints[author].writes:
                # The pattern for all resumes matches no particular file.
                if _PATTERN not in (*read_path, *written_path) and paths_overlap(read_path, written_path):
                    shared = _display_path(org, max(read_path, written_path, key=len))
                    return f"{reader} reads {shared}, which {author} may write"
        return ""

    for author in exposed_names:  # grows during the loop
        for reader in agents:
            if reader not in exposures and reader != author and (flow := describe_flow(author, reader)):
                exposures[reader] = f"{flow}, and {exposures.get(author) or sources[author]}"
                exposed_names += [reader] if reader not in exposed_names else []
    return exposures


def _display_path(org: Organisation, components: Sequence[str]) -> str:
    root, path = Path(org.base).resolve(), Path("/", *components)
    return str(path.relative_to(root)) if path.is_relative_to(root) and path != root else str(path)


def _outside_content_tools(config: Config) -> list[str]:
    trust = config.org.extensions.get("trust")
    if trust is None:
        return [*OUTSIDE_TOOLS]
    from lemming.capabilities.trust.trust_settings import TOOL_LABELS  # imported only with trust tracking

    return [pattern for pattern, label in {**TOOL_LABELS, **trust.tools}.items() if label == trust.order[0]]


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
