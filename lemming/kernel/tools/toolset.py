"""The tools of an organisation: shipped tools, registered tools, and tools of its own.

A `ToolSource` of a capability provides an organisation's own tools.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import is_

from lemming.kernel.agents import Agent, survey_agents
from lemming.kernel.base.errors import ConfigError, NoSuchTool, Problem
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.base.name_patterns import is_match
from lemming.kernel.files.field_types import Json
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capability_loader import installed_tools, missing_for_tool
from lemming.kernel.plugins.capability_table import GRANTING_KEYS
from lemming.kernel.plugins.plugin_registry import Catalogue
from lemming.kernel.tools.tool_definition import Tool

SHIPPED = installed_tools()
"""The tools that ship, as far as their folders are here, each with its place."""
FOR_EVERYBODY = frozenset({"list_agents", "memory_read", "memory_write"})
"""The tools that ship which say `always_allowed`."""
TOOL_SEARCH = "tool_search"
"""The tool that finds deferred tools. It is granted with the first pattern of `permissions.tools`."""


@dataclass(frozen=True, eq=False)
class OrgTools:
    """Tools of an organisation only, by name: tools for all its agents, and tools for single agents."""

    for_all: Mapping[str, Tool] = field(default_factory=dict)
    by_agent: Mapping[str, Mapping[str, Tool]] = field(default_factory=dict)
    broken_agents: Mapping[str, Sequence[Problem]] = field(default_factory=dict)
    """Problems in the tools of one agent alone, which exclude that agent."""
    gaps: str = ""
    """Patterns for tools without a match."""


NOBODY: Mapping[str, Sequence[Problem]] = {}


class ToolSource(ABC):
    """Source of an organisation's own tools, created and cached by its `Organisation`."""

    tools: OrgTools | None = None
    """The last result, the same object until it changes; None before the first scan."""

    @abstractmethod
    def __init__(self, org: Organisation) -> None:
        """Store the organisation only; the source may never be used."""

    @abstractmethod
    def refresh(self, settings: OrgSettings) -> Sequence[Problem]:
        """Reload the tools at a tick's start, and return problems. Raises `ConfigError`; `tools` then stays."""


class ServerSource(ToolSource):
    """A source of tools that only their server knows. Tool names begin with the `prefix` of the capability."""

    @property
    @abstractmethod
    def catalogue(self) -> object:
        """The catalogue of the servers' tools, the same object until it changes."""

    @abstractmethod
    def missing_tool_reason(self, pattern: str, *, today: bool = False) -> tuple[str, str] | None:
        """Return problem and hint if no server can have a matching tool, else None.

        `today`: use the current catalogue; otherwise only reasons that also hold in future.
        """

    @abstractmethod
    def scan_servers(self, agents: Sequence[Agent], tell: Callable[[Problem], None], *, sync: bool) -> Json:
        """Return the catalogues of servers for agents with a turn in this tick, to be recorded with the tick."""

    @abstractmethod
    def apply_scan(self, scan: Json) -> None:
        """Apply the scan of a tick, live or from its record."""


class Toolset(Catalogue[Tool]):
    """The tools of an organisation. Those of a single agent are in the agent's own toolset, see `for_agent`.

    `broken_agents`: agents excluded from turns, with the problems of their own tools. `gaps`: patterns without a match, as
    text. `own_memories`: keys of memories that tools keep for themselves, which prompts do not show.
    """

    def __init__(
        self,
        registered: Mapping[str, Tool],
        org_tools: Sequence[OrgTools] = (),
        broken_agents: Mapping[str, Sequence[Problem]] = NOBODY,
        gaps: str = "",
    ) -> None:
        self.broken_agents, self.gaps = broken_agents, gaps
        self._shared_tools = {**registered, **dict(chain.from_iterable(item.for_all.items() for item in org_tools))}
        super().__init__(SHIPPED, self._shared_tools, lambda kind: kind())
        agent_tools: dict[str, dict[str, Tool]] = {}
        for agent, tools in chain.from_iterable(item.by_agent.items() for item in org_tools):
            if agent not in broken_agents:
                agent_tools.setdefault(agent, {**self._shared_tools}).update(tools)
        self._agent_toolsets = {agent: Toolset(tools, gaps=gaps) for agent, tools in agent_tools.items()}
        self.own_memories = frozenset(key for tool in self._shared_tools.values() for key in tool.own_memories)

    def for_agent(self, agent_name: str) -> Toolset:
        """Return the tools of an agent."""
        return self._agent_toolsets.get(agent_name, self)

    @property
    def toolsets_by_agent(self) -> Mapping[str, Toolset]:
        """Toolsets of the agents with tools beyond the shared tools."""
        return self._agent_toolsets

    def allowed_tools(self, agent: Agent, settings: OrgSettings) -> dict[str, Tool]:
        """Return the tools an agent may call, without unknown names in its resume."""
        tools = self.for_agent(agent.name)
        names = [name for name in tools if tools._can_be_granted(name, agent)]
        return {name: tools[name] for name in names if not tools[name].refusal_reason(agent, settings)}

    def _can_be_granted(self, name: str, agent: Agent) -> bool:
        """Return False if a tool certainly is not granted, so a shipped tool need not be imported."""
        permissions = agent.permissions
        if keys := GRANTING_KEYS.get(name):
            return not keys.isdisjoint(agent.extensions)
        if name in self._shared_tools or name in FOR_EVERYBODY or name in permissions.tools:
            return True
        if name == TOOL_SEARCH:
            return bool(permissions.tool_patterns)
        return any(is_match(name, pattern) for pattern in permissions.tool_patterns)

    def require_allowed(self, name: str, agent: Agent, settings: OrgSettings) -> Tool:
        """Return a tool the agent may call. Raises `PermissionDenied`, or `NoSuchTool` for an unknown name."""
        tools = self.for_agent(agent.name)
        if name not in tools:
            allowed = [*self.allowed_tools(agent, settings), *sorted(turn_tool_names(agent))]
            hint = did_you_mean(name, allowed) or f"your tools: {', '.join(allowed)}"
            raise NoSuchTool(f'no tool "{name}"', hint=missing_for_tool(name) or hint)
        tools[name].require_granted(agent, settings)
        return tools[name]

    def find(self, name: str) -> Tool:
        """Return a tool, regardless of permissions. Raises `NoSuchTool` with the most similar name."""
        if name in self:
            return self[name]
        raise NoSuchTool(f'no tool "{name}"', hint=self.suggest_tools(name))

    def suggest_tools(self, name: str, candidates: Sequence[str] = ()) -> str:
        """Return a hint for an unknown tool name or pattern, with candidates from `candidates` or all tools."""
        names = [*(candidates or self)]
        near = missing_for_tool(name) or did_you_mean(name, names) or f"tools: {', '.join(sorted(names))}"
        return "; ".join(filter(None, (self.gaps, near)))


class OrgToolset:
    """The tools of an organisation's sources, combined with its shared tools."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._inputs: tuple[object, ...] = ()
        self._toolset: Toolset | None = None

    @property
    def is_loaded(self) -> bool:
        """True if the sources have been loaded; loading may run code that needs workspace trust first."""
        return self._toolset is not None

    def refresh(self, base: Toolset, sources: Sequence[ToolSource], settings: OrgSettings) -> Sequence[Problem]:
        """Reload all sources and return problems to report.

        After a failed reload the previous tools stay. Raises `ConfigError` without previous tools.
        """
        problems: list[Problem] = []
        for source in sources:
            try:
                problems += source.refresh(settings)
            except ConfigError as error:
                if source.tools is None:
                    raise
                problems += error.problems
        try:
            self._rebuild(base, sources)
        except ConfigError as error:
            if self._toolset is None:
                raise
            problems += error.problems
        return problems

    def get_toolset(self, base: Toolset, sources: Sequence[ToolSource], settings: OrgSettings) -> Toolset:
        """Return the current tools; sources are loaded only if never loaded before."""
        if self._toolset is None or any(source.tools is None for source in sources):
            self.refresh(base, sources, settings)
        elif base is not self._inputs[0]:
            self._rebuild(base, sources)
        assert self._toolset, "refreshed above"
        return self._toolset

    def _rebuild(self, base: Toolset, sources: Sequence[ToolSource]) -> None:
        org_tools = [source.tools or OrgTools() for source in sources]
        agents = survey_agents(self._org).agents
        inputs = (base, agents, *org_tools)
        if len(inputs) == len(self._inputs) and all(map(is_, inputs, self._inputs)):
            return
        broken_agents: dict[str, Sequence[Problem]] = _find_duplicate_names(base, org_tools, agents)
        for source_tools in org_tools:
            broken_agents |= source_tools.broken_agents
        gaps = "; ".join(source_tools.gaps for source_tools in org_tools if source_tools.gaps)
        self._toolset = Toolset(base.registered, org_tools, broken_agents, gaps)
        self._inputs = inputs


def _find_duplicate_names(
    base: Toolset, org_tools: Sequence[OrgTools], agents: Mapping[str, Agent]
) -> dict[str, Sequence[Problem]]:
    """Return the agents with two tools of the same name, and the problems with both locations.

    Raises `ConfigError` for two tools of the same name shared by all agents.
    """

    def add_tools(origins: dict[str, str], tools: Mapping[str, Tool], owner_text: str = "") -> Iterator[Problem]:
        for name, tool in tools.items():
            if name in origins:
                both = f"that of {tool.origin}, and that of {origins[name]}"
                yield _duplicate_problem(f'two tools have the name "{name}"{owner_text}: {both}', tool.origin)
            origins[name] = tool.origin

    common = {name: f"LeMMing ({import_path.replace(':', '.')})" for name, import_path in SHIPPED.items()}
    shared_problems = [*add_tools(common, base.registered)]
    for source_tools in org_tools:
        shared_problems += add_tools(common, source_tools.for_all)
    if shared_problems:
        raise ConfigError(str(shared_problems[0]), problems=tuple(shared_problems))
    duplicates: dict[str, Sequence[Problem]] = {}
    for agent in sorted({name for source_tools in org_tools for name in source_tools.by_agent} | {*agents}):
        origins = {**common}
        problems: list[Problem] = []
        for source_tools in org_tools:
            problems += add_tools(origins, source_tools.by_agent.get(agent, {}), f" for {agent}")
        for name in sorted(turn_tool_names(agents.get(agent)) & origins.keys()):
            both = f"that of {origins[name]}, and that of the team of {agent}"
            problems.append(_duplicate_problem(f'two tools have the name "{name}": {both}', origins[name]))
        if problems:
            duplicates[agent] = problems
    return duplicates


def _duplicate_problem(message: str, origin: str) -> Problem:
    file, _, line = origin.partition(":")
    hint = "rename one of them: @tool(name=...)"
    return Problem(message, file, *((int(line), 1) if line.isdigit() else (0, 0)), hint=hint)


def turn_tool_names(agent: Agent | None) -> set[str]:
    """Return the names of tools that exist only in an agent's turns; their calls stay in the turn.

    A value under a key of a capability lists them in its `turn_tools`.
    """
    values = agent.extensions.values() if agent else ()
    return {name for value in values for name in getattr(value, "turn_tools", ())}
