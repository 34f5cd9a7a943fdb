"""Agents that strangers may have act: what comes from outside reaches them, and no gate asks before a call.

What a model reads may be instructions, and it must be taken to follow them: `docs/security.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

from lemming.capabilities.gates.flows import Flow, Flows
from lemming.capabilities.gates.keys import gates_in
from lemming.kernel.agents import Agent, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import Problem
from lemming.kernel.base.patterns import is_among
from lemming.kernel.org.config import ORG_FILE, Config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.providers import is_channel
from lemming.kernel.tick.firing_plan import takes_turns
from lemming.kernel.tools import Tool, toolset_of

FROM_OUTSIDE = ("mcp.*", "http_*")
"""The tools that bring words of strangers where nothing else is said."""
ACTING = ("send", "execute", "administer")
_ONLY_FETCHES = "http_get"  # from hosts that the settings name
_LOOKS_AT_ALL = ("", "args", "check")
"""The findings of a gate that decides of every call that it concerns."""
Tools = Mapping[str, list[Tool]]


def problems_of_strangers(base: OrgPath, config: Config, only: str | None = None) -> Iterator[Problem]:
    """Yield a warning for each agent that somebody outside could have act, with the way words take to it."""
    org = Organisation.at(base)
    agents = {name: it for name, it in survey_agents(org).agents.items() if takes_turns(it, config)}
    toolset, outside = toolset_of(config.org, org), _tools_of_strangers(config)
    brings = cache(lambda tool: is_among(tool, outside))  # the same few tools, for each agent
    tools = {
        name: [
            tool
            for tool in toolset.of(name).values()
            if (_acts(tool) or brings(tool.name)) and not tool.why_refused(agent, config.org)
        ]
        for name, agent in agents.items()
    }
    bring = {name: [tool for tool in tools[name] if brings(tool.name)] for name in agents}
    ways = _ways_from_others(org, config, agents, bring)
    for name, agent in agents.items():
        if only in (None, name):
            acting = [
                tool
                for tool in tools[name]
                if _acts(tool)
                and (name in ways or any(other is not tool for other in bring[name]))
                and not _is_gated(tool, agent, config)
            ]
            if acting:
                yield _warning(agent, ways.get(name) or _shown(name, bring[name]), acting)


def _warning(agent: Agent, way: str, acting: list[Tool]) -> Problem:
    what = ", ".join(f"{tool.name} ({tool.tool_class})" for tool in acting)
    classes = '", "'.join(dict.fromkeys(tool.tool_class for tool in acting))
    return Problem(
        f"strangers may have {agent.name} call {what}: {way}, and no gate asks or blocks",
        paths.resume_file(agent.name),
        pointer="/permissions/tools",
        hint=f'{{"at": "call", "class": ["{classes}"], "then": "ask"}} among the gates of {ORG_FILE}',
        severity="warning",
    )


def _ways_from_others(
    org: Organisation, config: Config, agents: Mapping[str, Agent], bring: Tools
) -> dict[str, str]:
    """Return the agents whom words from outside reach through a channel or other agents, each with a way."""
    entries = {name: config.models.get(it.model.key) for name, it in survey_agents(org).agents.items()}
    plugins = config.org.plugins
    channels = [name for name, it in entries.items() if it and is_channel(it.provider, plugins)]
    ways = {
        name: f"{name} reads {channel}, a channel"
        for name, agent in agents.items()
        for channel in reversed(channels)
        if agent.may_read(channel)
    }
    hearing = [name for name in agents if name in ways or bring[name]]
    if not hearing:
        return {}
    flows = Flows(org, config.org, agents, toolset_of(config.org, org))
    for author in hearing:  # grows as it goes
        for flow in flows.by(author):
            name = flow.reader
            if name not in ways:
                ways[name] = f"{_in_words(flow)}, and {ways.get(author) or _shown(author, bring[author])}"
                hearing += [name] if name not in hearing else []
    return ways


def _shown(name: str, tools: list[Tool]) -> str:
    return f"{name} is shown what {', '.join(tool.name for tool in tools)} gives"


def _tools_of_strangers(config: Config) -> list[str]:
    trust = config.org.further.get("trust")
    if trust is None:
        return [*FROM_OUTSIDE]
    from lemming.capabilities.trust.settings import OF_TOOLS  # only where it is tracked

    return [pattern for pattern, word in {**OF_TOOLS, **trust.tools}.items() if word == trust.order[0]]


def _in_words(flow: Flow) -> str:
    if flow.place:
        return f"{flow.reader} reads {flow.place}, which {flow.author} may write"
    return f"{flow.reader} reads {flow.author}"


def _acts(tool: Tool) -> bool:
    return tool.tool_class in ACTING and tool.name != _ONLY_FETCHES


def _is_gated(tool: Tool, agent: Agent, config: Config) -> bool:
    for gate in (*gates_in(config.org), *gates_in(agent)):
        if gate.at == "call" and gate.concerns_tool(tool.name, tool.tool_class):
            if gate.then in ("ask", "block", "stop") and gate.finding in _LOOKS_AT_ALL:
                return True
            if gate.then == "pass" and gate.when is None and not gate.finding:
                return False
    return False
