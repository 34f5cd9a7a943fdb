"""What there is in an organisation for gates, grants and rules to be about, and one thing wrong with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from lemming.kernel.agents import Agent, Survey
from lemming.kernel.base.patterns import is_named
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.shipped import PREFIXES
from lemming.kernel.providers import is_channel, is_person
from lemming.kernel.tools import Tool, why_no_server
from lemming.kernel.tools.toolset import Toolset, turn_tools


class Fault(NamedTuple):
    """The place in a file (a JSON pointer), what is wrong there, and what to do."""

    at: str
    message: str
    hint: str


@dataclass(frozen=True)
class Inventory:
    """What there is; `toolset` is None where not all tools are known here.

    `capabilities` are those that do not ship, by name; none where nobody names any.
    """

    org: Organisation
    config: Config
    survey: Survey
    toolset: Toolset | None
    capabilities: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def names(self) -> list[str]:
        """All agents, those among them whose resumes are broken."""
        return sorted({*self.survey.agents, *self.survey.broken})

    @cached_property
    def tool_names(self) -> frozenset[str]:
        """The names of all tools, whoever may call them."""
        tools = self.toolset
        own = tools.agents_with_more.values() if tools else ()
        return frozenset(name for each in (tools or (), *own) for name in each)

    @cached_property
    def turn_tools(self) -> frozenset[str]:
        """What is called ask_... and hand_to_...: entries, and no calls."""
        return frozenset(name for agent in self.survey.agents.values() for name in turn_tools(agent))

    def tools_of(self, agent: Agent | None) -> Mapping[str, Tool] | None:
        """Return the tools there are for an agent (None: for one at least), but for those of servers."""
        if self.toolset is None:
            return None
        sets = (self.toolset, *self.toolset.agents_with_more.values())
        of_all = sets if agent is None else (self.toolset.of(agent.name),)
        return {name: tools[name] for tools in of_all for name in tools if not name.startswith(PREFIXES)}

    def is_person(self, name: str) -> bool:
        """Return whether a person speaks for an agent, or may, as its resume cannot be read."""
        return self._stands_for(name, is_person)

    def is_channel(self, name: str) -> bool:
        """Return whether a channel speaks for an agent, or may."""
        return self._stands_for(name, is_channel)

    def provider_of(self, name: str) -> str:
        """Return the provider that speaks for an agent; empty where nobody knows."""
        agent = self.survey.agents.get(name)
        entry = self.config.models.get(agent.model.key) if agent else None
        return entry.provider if entry else ""

    def _stands_for(self, name: str, which: object) -> bool:
        agent = self.survey.agents.get(name)
        entry = self.config.models.get(agent.model.key) if agent else None
        return agent is None or (
            entry is not None and callable(which) and bool(which(entry.provider, self.config.org.plugins))
        )

    def why_no_tool(self, pattern: str) -> tuple[str, str] | None:
        """Return why a name or pattern can be that of no tool, and what to do; None when it may be.

        While the own tools of some agent cannot be loaded, it may be one of theirs. Which tools a server has,
        only the server says: one that is configured is known enough.
        """
        if pattern.startswith(PREFIXES):
            return why_no_server(self.org, pattern)
        if (
            self.toolset is None
            or self.toolset.out
            or any(is_named(name, pattern) for name in self.tool_names)
        ):
            return None
        known = [*self.tool_names, *{f"{name.partition('_')[0]}_*" for name in self.tool_names}]
        return f'there is no tool "{pattern}"', self.toolset.hint_for(pattern, known)

    def may_have_more_tools(self, patterns: Iterable[str]) -> bool:
        """Return whether tools of servers, whose arguments nobody knows, may be among those of patterns."""
        begin = [it.split("*")[0] for it in patterns]
        return any(it.startswith(prefix) or prefix.startswith(it) for it in begin for prefix in PREFIXES)
