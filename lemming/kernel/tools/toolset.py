"""The tools of one organisation: those that ship, those registered for it, and those that are its own.

Where tools of its own come from is a `ToolSource` of a capability.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_

from lemming.kernel.agents import Agent, survey_agents
from lemming.kernel.base.errors import ConfigError, NoSuchTool, Problem
from lemming.kernel.base.jsontext import nearest
from lemming.kernel.base.patterns import is_named
from lemming.kernel.files.fields import Json
from lemming.kernel.org.config import Org
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capabilities import missing_for_tool
from lemming.kernel.plugins.catalogue import Catalogue
from lemming.kernel.plugins.shipped import GRANTED
from lemming.kernel.tools.definition import Tool

FOR_EVERYBODY = frozenset({"list_agents", "memory_read", "memory_write"})
"""The tools that ship which say `always_allowed`."""
TOOL_SEARCH = "tool_search"
"""The tool that finds deferred tools. It is granted with the first pattern of `permissions.tools`."""


@dataclass(frozen=True, eq=False)
class OwnTools:
    """Tools that one organisation alone has, by name: for all of its agents, and more for some of them."""

    for_all: Mapping[str, Tool] = field(default_factory=dict)
    by_agent: Mapping[str, Mapping[str, Tool]] = field(default_factory=dict)
    out: Mapping[str, Sequence[Problem]] = field(default_factory=dict)
    """What is wrong with the tools that one agent alone would have: it keeps that agent out."""
    gaps: str = ""
    """Where tools were looked for, and there are none."""


NOBODY: Mapping[str, Sequence[Problem]] = {}


class ToolSource(ABC):
    """Where tools of an organisation's own come from; its `Organisation` makes and keeps it."""

    tools: OwnTools | None = None
    """What was found last, the very same value until something else is; None before the first look."""

    @abstractmethod
    def __init__(self, org: Organisation) -> None:
        """Keep nothing yet: nobody may ever ask."""

    @abstractmethod
    def refresh(self, settings: Org) -> Sequence[Problem]:
        """Look again, which is done as a tick begins; return what a person should know.

        Raises `ConfigError` where something is wrong; `tools` then stay as they were.
        """


class ServerSource(ToolSource):
    """A source whose tools servers have: which these are, only a server says.

    Their names begin with the `prefix` of the capability.
    """

    @property
    @abstractmethod
    def known(self) -> object:
        """What is known of the servers, the very same value until something else is."""

    @abstractmethod
    def servers_of(self, tools: Iterable[str]) -> Sequence[str]:
        """Return the servers that tools of these names or patterns are of."""

    @abstractmethod
    def why_no_tool(self, pattern: str, *, today: bool = False) -> tuple[str, str] | None:
        """Return why no server has a tool of that name or pattern, and what to do; None where one may.

        `today`: as far as is known of them today; else only what will not be so tomorrow either.
        """

    @abstractmethod
    def look(self, agents: Sequence[Agent], tell: Callable[[Problem], None], *, sync: bool) -> Json:
        """Return what servers have for agents that take a turn in this tick: its record keeps it."""

    @abstractmethod
    def go_by(self, looked: Json) -> None:
        """Go by what the look of a tick came to, live or from its record."""


class Toolset(Catalogue[Tool]):
    """The tools of one organisation. Those that only one agent has are in that agent's own: see `of`."""

    def __init__(
        self,
        shipped: Mapping[str, str],
        registered: Mapping[str, Tool],
        own: Sequence[OwnTools] = (),
        out: Mapping[str, Sequence[Problem]] = NOBODY,
        gaps: str = "",
    ) -> None:
        self.out, self.gaps = out, gaps
        self._for_all = {**registered, **{name: tool for each in own for name, tool in each.for_all.items()}}
        super().__init__(shipped, self._for_all, lambda kind: kind())
        by_agent: dict[str, dict[str, Tool]] = {}
        for each in own:
            for agent, tools in each.by_agent.items():
                if agent not in out:
                    by_agent.setdefault(agent, {}).update(tools)
        further = {agent: {**self._for_all, **tools} for agent, tools in by_agent.items()}
        self._of_agents = {agent: Toolset(shipped, tools, gaps=gaps) for agent, tools in further.items()}
        self.own_memories = frozenset(key for tool in self._for_all.values() for key in tool.own_memories)

    out: Mapping[str, Sequence[Problem]]
    """The agents that take no turn, with what is wrong with the tools of their own."""

    gaps: str
    """Where more of them were looked for, and there are none; empty where there is nothing to say."""

    own_memories: frozenset[str]
    """Keys of memories that tools keep for themselves: prompts do not show them."""

    def of(self, agent_name: str) -> Toolset:
        """Return the tools there are for one agent."""
        return self._of_agents.get(agent_name, self)

    @property
    def agents_with_more(self) -> Mapping[str, Toolset]:
        """The agents that have tools beside those of all, with all of theirs."""
        return self._of_agents

    def allowed(self, agent: Agent, settings: Org) -> dict[str, Tool]:
        """Return the tools an agent may call; names in its resume that no tool has are left out."""
        tools = self.of(agent.name)
        names = [name for name in tools if tools._may_be_granted(name, agent)]
        return {name: tools[name] for name in names if not tools[name].why_refused(agent, settings)}

    def _may_be_granted(self, name: str, agent: Agent) -> bool:
        """Return whether it is worth a look: a tool that ships is imported by looking at it."""
        permissions = agent.permissions
        if key := GRANTED.get(name):
            return key in agent.further
        if name in self._for_all or name in FOR_EVERYBODY or name in permissions.tools:
            return True
        if name == TOOL_SEARCH:
            return bool(permissions.tool_patterns)
        return any(is_named(name, pattern) for pattern in permissions.tool_patterns)

    def require(self, name: str, agent: Agent, settings: Org) -> Tool:
        """Return a tool that an agent may call; raise `PermissionDenied` when it may not, or `NoSuchTool`."""
        tools = self.of(agent.name)
        if name not in tools:
            allowed = [*self.allowed(agent, settings), *sorted(turn_tools(agent))]
            hint = nearest(name, allowed) or f"your tools: {', '.join(allowed)}"
            raise NoSuchTool(f'no tool "{name}"', hint=missing_for_tool(name) or hint)
        tools[name].require_granted(agent, settings)
        return tools[name]

    def find(self, name: str) -> Tool:
        """Return a tool whoever may call it; raise `NoSuchTool` with the nearest name."""
        if name in self:
            return self[name]
        raise NoSuchTool(f'no tool "{name}"', hint=self.hint_for(name))

    def hint_for(self, name: str, known: Sequence[str] = ()) -> str:
        """Return what to do where no tool has this name or pattern; `known`: those to be named, else all."""
        names = [*(known or self)]
        near = missing_for_tool(name) or nearest(name, names) or f"tools: {', '.join(names)}"
        return "; ".join(filter(None, (self.gaps, near)))


class OwnToolset:
    """What an organisation's sources have brought, joined with what it has anyway."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._parts: tuple[object, ...] = ()
        self._toolset: Toolset | None = None

    @property
    def has_looked(self) -> bool:
        """Whether the sources have been looked at, which may load code that needs approval first."""
        return self._toolset is not None

    def refresh(
        self, base: Toolset, shipped: Mapping[str, str], sources: Sequence[ToolSource], settings: Org
    ) -> Sequence[Problem]:
        """Have all sources look again; return what a person should know.

        Where something is wrong, what there was before holds. Raises `ConfigError` where there was nothing.
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
            self._join(base, shipped, sources)
        except ConfigError as error:
            if self._toolset is None:
                raise
            problems += error.problems
        return problems

    def toolset(
        self, base: Toolset, shipped: Mapping[str, str], sources: Sequence[ToolSource], settings: Org
    ) -> Toolset:
        """Return the tools as they are now; the sources look only if they never have."""
        if self._toolset is None or any(source.tools is None for source in sources):
            self.refresh(base, shipped, sources, settings)
        elif base is not self._parts[0]:
            self._join(base, shipped, sources)
        assert self._toolset, "refreshed"
        return self._toolset

    def _join(self, base: Toolset, shipped: Mapping[str, str], sources: Sequence[ToolSource]) -> None:
        own = [source.tools or OwnTools() for source in sources]
        agents = survey_agents(self._org).agents
        parts = (base, agents, *own)
        if len(parts) == len(self._parts) and all(map(is_, parts, self._parts)):
            return
        out: dict[str, Sequence[Problem]] = named_twice(base, shipped, own, agents)
        for each in own:
            out |= each.out
        gaps = "; ".join(each.gaps for each in own if each.gaps)
        self._toolset = Toolset(shipped, base.registered, own, out, gaps)
        self._parts = parts


def named_twice(
    base: Toolset, shipped: Mapping[str, str], own: Sequence[OwnTools], agents: Mapping[str, Agent]
) -> dict[str, Sequence[Problem]]:
    """Return the agents for which two tools are called the same, each with both places.

    Raises `ConfigError` where two tools that all agents have are.
    """

    def take(known: dict[str, str], tools: Mapping[str, Tool], whose: str = "") -> Iterator[Problem]:
        for name, tool in tools.items():
            if name in known:
                both = f"that of {tool.origin}, and that of {known[name]}"
                yield _twice(f'two tools are called "{name}"{whose}: {both}', tool.origin)
            known[name] = tool.origin

    common = {name: f"LeMMing ({place.replace(':', '.')})" for name, place in shipped.items()}
    of_all = [*take(common, base.registered)]
    for each in own:
        of_all += take(common, each.for_all)
    if of_all:
        raise ConfigError(str(of_all[0]), problems=tuple(of_all))
    found: dict[str, Sequence[Problem]] = {}
    for agent in sorted({name for each in own for name in each.by_agent} | {*agents}):
        known = {**common}
        problems: list[Problem] = []
        for each in own:
            problems += take(known, each.by_agent.get(agent, {}), f" for {agent}")
        for name in sorted(turn_tools(agents.get(agent)) & known.keys()):
            both = f"that of {known[name]}, and that of the team of {agent}"
            problems.append(_twice(f'two tools are called "{name}": {both}', known[name]))
        if problems:
            found[agent] = problems
    return found


def _twice(message: str, origin: str) -> Problem:
    file, _, line = origin.partition(":")
    hint = "give one of them another name: @tool(name=...)"
    return Problem(message, file, *((int(line), 1) if line.isdigit() else (0, 0)), hint=hint)


def turn_tools(agent: Agent | None) -> set[str]:
    """Return what tools are called that are of an agent's turns alone: no calls of these leave a turn.

    A value of a key that capabilities read says so, as its `turn_tools`.
    """
    values = agent.further.values() if agent else ()
    return {name for value in values for name in getattr(value, "turn_tools", ())}
