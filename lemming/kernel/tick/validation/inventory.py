"""Inventory of an organisation, against which gates, grants and rules are validated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from lemming.kernel.agents import Agent, Survey
from lemming.kernel.base.name_patterns import is_match
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capability_table import PREFIXES
from lemming.kernel.providers import is_channel, is_person
from lemming.kernel.tools import Tool, missing_server_tool_reason
from lemming.kernel.tools.toolset import Toolset, turn_tool_names


class PointerProblem(NamedTuple):
    """A problem in a file: JSON pointer, message and hint."""

    at: str
    message: str
    hint: str


@dataclass(frozen=True)
class Inventory:
    """Agents, tools and capabilities of an organisation.

    `toolset` is None unless all tools are known. `capabilities` holds the external capabilities by name, if a
    file names any.
    """

    org: Organisation
    config: Config
    survey: Survey
    toolset: Toolset | None
    capabilities: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def agent_names(self) -> list[str]:
        """Names of all agents, including agents with broken resumes."""
        return sorted({*self.survey.agents, *self.survey.broken})

    @cached_property
    def tool_names(self) -> frozenset[str]:
        """Names of all tools of all agents."""
        tools = self.toolset
        agent_toolsets = tools.toolsets_by_agent.values() if tools else ()
        return frozenset(name for toolset in (tools or (), *agent_toolsets) for name in toolset)

    @cached_property
    def turn_tools(self) -> frozenset[str]:
        """Names of the `ask_...` and `hand_to_...` tools, which write entries instead of making calls."""
        return frozenset(name for agent in self.survey.agents.values() for name in turn_tool_names(agent))

    def tools_for_agent(self, agent: Agent | None) -> Mapping[str, Tool] | None:
        """Return the tools of an agent without server tools; with None, the tools of at least one agent."""
        if self.toolset is None:
            return None
        all_toolsets = (self.toolset, *self.toolset.toolsets_by_agent.values())
        toolsets = all_toolsets if agent is None else (self.toolset.for_agent(agent.name),)
        return {name: tools[name] for tools in toolsets for name in tools if not name.startswith(PREFIXES)}

    def is_person(self, name: str) -> bool:
        """Return True if a person represents the agent, or the resume is unreadable."""
        return self._has_provider_kind(name, is_person)

    def is_channel(self, name: str) -> bool:
        """Return True if a channel represents the agent, or the resume is unreadable."""
        return self._has_provider_kind(name, is_channel)

    def agent_provider(self, name: str) -> str:
        """Return the provider of an agent's model, or an empty text."""
        agent = self.survey.agents.get(name)
        entry = self.config.models.get(agent.model.key) if agent else None
        return entry.provider if entry else ""

    def _has_provider_kind(self, name: str, is_kind: object) -> bool:
        agent = self.survey.agents.get(name)
        entry = self.config.models.get(agent.model.key) if agent else None
        return agent is None or (
            entry is not None and callable(is_kind) and bool(is_kind(entry.provider, self.config.org.plugins))
        )

    def missing_tool_reason(self, pattern: str) -> tuple[str, str] | None:
        """Return problem and hint for a name or pattern that matches no tool, or None if it can match.

        While an agent's custom tools cannot be loaded, the name may be one of them. Only a server knows its
        tools: a configured server is enough.
        """
        if pattern.startswith(PREFIXES):
            return missing_server_tool_reason(self.org, pattern)
        if (
            self.toolset is None
            or self.toolset.broken_agents
            or any(is_match(name, pattern) for name in self.tool_names)
        ):
            return None
        candidates = [*self.tool_names, *{f"{name.partition('_')[0]}_*" for name in self.tool_names}]
        return f'tool "{pattern}" does not exist', self.toolset.suggest_tools(pattern, candidates)

    def may_match_server_tools(self, patterns: Iterable[str]) -> bool:
        """Return True if the patterns may match server tools, with unknown arguments."""
        pattern_prefixes = [pattern.split("*")[0] for pattern in patterns]
        return any(
            pattern.startswith(prefix) or prefix.startswith(pattern)
            for pattern in pattern_prefixes
            for prefix in PREFIXES
        )
