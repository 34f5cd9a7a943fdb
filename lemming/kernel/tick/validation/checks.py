"""The `Check`: checks of the kernel's modules and of capabilities find all problems.

docs/TROUBLESHOOTING.md says where to add a check. The scope of a check is its subject, and decides about the argument of `find`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from lemming.kernel.agents import Agent, Survey, list_agent_folders, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.base.name_patterns import is_match
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capability_loader import get_capability, load_item
from lemming.kernel.plugins.capability_spec import load_object
from lemming.kernel.plugins.capability_table import LISTED, PREFIXES
from lemming.kernel.plugins.plugin_registry import find_unimported
from lemming.kernel.providers import is_channel, is_person
from lemming.kernel.tools import Tool, get_toolset, missing_server_tool_reason
from lemming.kernel.tools.toolset import Toolset, turn_tool_names

if TYPE_CHECKING:
    from lemming.kernel.tick_context import TickContext
    from lemming.kernel.turn.turn_values import TurnInputs

Cost = Literal["names", "files", "journals", "world"]
"""Data read by a check: names of files and folders; contents of files; journals; anything outside the
organisation's folder."""
Scope = Literal["settings", "resume", "agent", "organisation", "turn", "files", "journals", "behaviour", "machine"]
"""The subject of a check, which decides about the argument of `find` and about the effect of an error.

- `settings`, `resume`: names in `config/*.json`, and in one resume. `find` gets a `CheckSubject`, or an `AgentSubject`. These
  run before each tick, and read no further file. An error stops the run, or takes the agent out of service (broken).
- `agent`, `organisation`: an agent with its files, and all agents together. `find` gets the same. An error is
  shown.
- `turn`: an interrupted turn before resuming. `find` gets a `TurnSubject`. A problem abandons the turn.
- `files`, `machine`: the engine's own files, and the machine. `find` gets the run of the checks.
- `journals`: journals against files. `find` gets the `VerificationInputs`.
- `behaviour`: the newest turns. `find` gets the `FindingScan`.
"""


class Check(NamedTuple):
    """A check: name, cost, scope and description, and the function for finding problems.

    After an error of a check with `stops`, no later check runs. A check with `is_org_wide` is skipped when a single agent
    is checked. `title` and `exclusions` are those of a kind of finding.
    """

    name: str
    cost: Cost
    scope: Scope
    description: str
    find: Callable[[Any], Iterable[Problem]]
    stops: bool = False
    is_org_wide: bool = False
    title: str = ""
    exclusions: str = ""

    @property
    def meaning(self) -> str:
        """The description as a sentence."""
        return f"{self.description[0].upper()}{self.description[1:]}."


@dataclass(frozen=True, kw_only=True)
class CheckSubject:
    """The settings, or the organisation: the subject of a check of the scopes `settings` and `organisation`.

    `only`: the one agent to check, or None for all of them and the settings. A problem without a file is in the agent's
    resume, or in `config/org.json`.
    """

    org: Organisation
    config: Config
    agent: Agent | None = None
    only: str | None = None
    inventory: Inventory | None = None

    @cached_property
    def names(self) -> Inventory:
        """The agents, tools and models that names can mean."""
        toolset = load_toolset(self.org, self.config) if self.inventory is None else None
        return self.inventory or Inventory(self.org, self.config, survey_agents(self.org), toolset)

    @property
    def file(self) -> str:
        """The agent's resume, or `config/org.json`."""
        return paths.resume_file(self.agent.name) if self.agent else paths.ORG_FILE


@dataclass(frozen=True, kw_only=True)
class AgentSubject(CheckSubject):
    """An agent: the subject of a check of the scopes `resume` and `agent`."""

    agent: Agent


class TurnSubject(NamedTuple):
    """An interrupted turn before resuming, with the recorded inputs: the subject of a check of the scope `turn`."""

    inputs: TurnInputs
    tick_context: TickContext


def load_toolset(org: Organisation, config: Config) -> Toolset | None:
    """Return the tools, or None if not all tools are known."""
    settings = config.org
    if find_unimported(settings.plugins) or load_config(org).org.tool_files != settings.tool_files:
        return None
    try:
        return get_toolset(settings, org)
    except ConfigError:
        return None


def find_check(
    name: str, scope: Scope, plugins: Iterable[str] | None = None
) -> Callable[[Any], Iterable[Problem]] | None:
    """Return the check of a capability in a scope, or None. Raises `ConfigError` for a missing capability."""
    if name in LISTED:
        path = LISTED[name].items("checks").get(scope)
        check = load_item(name, path) if path else None
    else:
        item = get_capability(name, plugins).provides.get("checks", {}).get(scope)
        check = load_object(item) if isinstance(item, str) else item
    return check


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
    def folders(self) -> list[str]:
        """Names of all folders below `agents/`."""
        return list_agent_folders(self.org)

    @cached_property
    def allowed_tools(self) -> Mapping[str, Mapping[str, Tool]]:
        """Callable tools of each agent with a valid resume; none if not all tools are known."""
        toolset, agents = self.toolset, self.survey.agents.items()
        return {name: toolset.allowed_tools(agent, self.config.org) for name, agent in agents} if toolset else {}

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
        """Return True if a person represents the agent, or the resume is unreadable. False for a name without an agent."""
        return name in self.agent_names and self._has_provider_kind(name, is_person)

    def is_channel(self, name: str) -> bool:
        """Return True if a channel represents the agent, or the resume is unreadable. False for a name without an agent."""
        return name in self.agent_names and self._has_provider_kind(name, is_channel)

    def agent_provider(self, name: str) -> str:
        """Return the provider of an agent's model, or an empty text."""
        agent = self.survey.agents.get(name)
        entry = self.config.models.get(agent.model.key) if agent else None
        return entry.provider if entry else ""

    def _has_provider_kind(self, name: str, is_kind: Callable[[str, Sequence[str]], bool]) -> bool:
        provider = self.agent_provider(name)
        return name not in self.survey.agents or bool(provider and is_kind(provider, self.config.org.plugins))

    def missing_tool_reason(self, pattern: str) -> tuple[str, str] | None:
        """Return problem and hint for a name or pattern that matches no tool, or None if it can match.

        While an agent's custom tools cannot be loaded, the name may be one of them. Only a server knows its
        tools: a configured server is enough.
        """
        if pattern.startswith(PREFIXES):
            return missing_server_tool_reason(self.org, pattern)
        toolset = self.toolset
        if toolset is None or toolset.broken_agents or any(is_match(name, pattern) for name in self.tool_names):
            return None
        candidates = [*self.tool_names, *{f"{name.partition('_')[0]}_*" for name in self.tool_names}]
        return f'tool "{pattern}" does not exist', toolset.suggest_tools(pattern, candidates)

    def may_match_server_tools(self, patterns: Iterable[str]) -> bool:
        """Return True if the patterns may match server tools, with unknown arguments."""
        starts = [pattern.split("*")[0] for pattern in patterns]
        return any(start.startswith(prefix) or prefix.startswith(start) for start in starts for prefix in PREFIXES)
