"""Tools: what an agent can do beside writing to its outbox and its memory.

A tool of your own derives from `Tool` and is registered with `ToolRegistry.register`. Those that ship live
below `lemming/capabilities/`; they say what would change (`plan`) and leave the writing to the engine.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lemming.kernel.agents import Agent, Survey, latest_survey, load_agent
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.errors import LemmingError, Problem
from lemming.kernel.base.errors import RecoverableError as RecoverableError
from lemming.kernel.base.errors import ToolError as ToolError
from lemming.kernel.base.kinds import ToolClass as ToolClass
from lemming.kernel.base.patterns import is_named
from lemming.kernel.base.redaction.secrets import redact_content
from lemming.kernel.journal.ledger import amend_state, read_state
from lemming.kernel.org.config import Org, load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.plugins.capabilities import (
    missing_for_tool,
    source_class,
    source_of,
    tool_of_function,
    tools_here,
    why_missing,
)
from lemming.kernel.plugins.registry import offered, register, unregister
from lemming.kernel.plugins.shipped import SOURCES
from lemming.kernel.tools.arguments import Arguments, arguments_of
from lemming.kernel.tools.classes import require_usable
from lemming.kernel.tools.definition import ANYWHERE as ANYWHERE
from lemming.kernel.tools.definition import NOWHERE as NOWHERE
from lemming.kernel.tools.definition import Places as Places
from lemming.kernel.tools.definition import Tool as Tool
from lemming.kernel.tools.definition import ToolResult as ToolResult
from lemming.kernel.tools.toolset import OwnToolset, ServerSource, Toolset, ToolSource

if TYPE_CHECKING:
    from lemming.kernel.tools.context import ToolContext


class EngineTool(Tool):
    """A tool whose writing the engine does: `plan` reads, decides, and returns effects."""

    repeatable = True
    stages_files = True

    def writes(self, agent: Agent, settings: Org) -> Places:
        """Return what an agent's calls may have changed outside its own folder."""
        return NOWHERE

    @property
    def is_planned(self) -> bool:
        """Whether it writes, and no more: what one that asks a server asks has left the house."""
        return self.tool_class in ("write", "administer")

    @abstractmethod
    def plan(self, context: ToolContext, *args: Any, **kwargs: Any) -> ToolResult:
        """Return the result and the effects. Raise `ToolError` to tell the agent what went wrong."""

    def invoke(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        """Plan the call; the engine writes its effects."""
        return self.plan(context, **arguments)

    def execute(self, agent_name: str, base_path: Path, *args: Any, **kwargs: Any) -> ToolResult:
        """Plan the call and write its effects at once: the tool without an engine around it.

        What the agent may not do is refused here too. Raises `ConfigError` when there is no such agent.
        """
        from lemming.kernel.files.effects import apply_effect
        from lemming.kernel.tools.context import ToolContext

        org = Organisation.at(base_path)
        settings = load_config(org).org
        context = ToolContext(
            agent=load_agent(org, agent_name),
            org=org,
            settings=settings,
            now=timestamp(SystemClock().now()),
            tick=read_state(org, agent_name).tick + 1,
        )
        try:
            self.require_granted(context.agent, context.settings)
            result = self.plan(context, *args, **self.check(kwargs))
        except LemmingError as error:
            return ToolResult(False, str(error))
        if result.passed_on:  # first, so that no allowance is there twice
            state = read_state(org, agent_name)
            amend_state(org, agent_name, replace(state, passed_on=state.passed_on + result.passed_on))
        for effect in result.effects:
            apply_effect(org.base, replace(effect, content=redact_content(effect.content)))
        return result

    @property
    def _arguments(self) -> Arguments:
        return arguments_of(type(self).plan, 2)  # self, context


SHIPPED = tools_here()
"""The tools that ship, as far as their folders are here, each with its place."""


def toolset_of(settings: Org, org: OrgPath | None = None) -> Toolset:
    """Return the tools of an organisation with these settings: the same value until there are others.

    Without `org` they are those that it shares with others. Raises `ConfigError` when its own, which have not
    been looked for before, are wrong.
    """
    base = offered("tool", tuple(settings.plugins), _registered)
    if org is None:
        return base
    known = Organisation.at(org)
    if not (named := _named_sources(settings, latest_survey(known))):
        return base
    return known.own(OwnToolset).toolset(base, SHIPPED, _sources(known, named), settings)


def refresh_tools(settings: Org, org: Organisation) -> list[Problem]:
    """Look for the organisation's own tools again, as a tick begins; return what a person should know.

    Where something is wrong, the tools from before hold. Raises `ConfigError` where there are none.
    """
    if not (named := _named_sources(settings, latest_survey(org))):
        return []
    base = offered("tool", tuple(settings.plugins), _registered)
    return [*org.own(OwnToolset).refresh(base, SHIPPED, _sources(org, named), settings)]


def _registered(tools: Mapping[str, Tool]) -> Toolset:
    return Toolset(SHIPPED, tools)


def has_own_tools(settings: Org, survey: Survey) -> bool:
    """Return whether an organisation may have tools of its own; else `toolset_of` need not look for any."""
    return bool(_named_sources(settings, survey))


def _named_sources(settings: Org, survey: Survey) -> list[str]:
    """Return the capabilities that bring the organisation tools of its own."""
    named = (it for it in SOURCES.values() if it.brings and it.brings(settings, survey))
    return [it.name for it in named if not (it.prefix and why_missing(it.name))]  # who names them is kept out


def _sources(org: Organisation, named: Iterable[str]) -> list[ToolSource]:
    return [org.own(source_class(name)) for name in named]


def server_sources(org: OrgPath) -> dict[str, ServerSource]:
    """Return the sources whose tools servers have, as far as they are here, by capability."""
    here = (it for it in SOURCES.values() if it.prefix and not why_missing(it.name))
    return {it.name: Organisation.at(org).own(source_class(it.name)) for it in here}


def why_no_server(org: OrgPath, pattern: str, *, today: bool = False) -> tuple[str, str] | None:
    """Return why no server has a tool of that name or pattern, as `ServerSource.why_no_tool` does."""
    if missing := missing_for_tool(pattern):
        return f'"{pattern}" is no tool here: {missing}', "install lemming-engine again"
    return server_sources(org)[source_of(pattern)].why_no_tool(pattern, today=today)


def shipped_tools(names: Sequence[str]) -> Iterator[Tool]:
    """Return those tools that ship which names or patterns as in `permissions.tools` grant."""
    wanted = [name for name in SHIPPED if any(is_named(name, pattern) for pattern in names)]
    return map(ToolRegistry.get, wanted)


class ToolRegistry:
    """Where plugins, and programs that the engine is part of, say which tools they bring.

    It keeps nothing itself, and no organisation looks here for what it has: that is its `Toolset`.
    """

    @staticmethod
    def register(tool: Tool | Callable[..., Any]) -> None:
        """Add a tool of your own, or a newer version of it: a `Tool`, or a function with `@tool`.

        While a plugin is loaded it is for the organisations that name the plugin, else for all of the
        process. Raises `TypeError` for what is no usable tool, `ValueError` for the name of one that ships.
        """
        from lemming.kernel.tools.declared import declared

        if declared(tool) is not None:
            tool = tool_of_function(tool)
        if not isinstance(tool, Tool):
            raise TypeError(f"register takes an instance of a Tool, not {tool!r}")
        require_usable(tool)
        register("tool", tool.name, tool, defined_by=tool.defined_by, shipped=SHIPPED)

    @staticmethod
    def unregister(name: str) -> None:
        """Take a registered tool away; those that ship stay."""
        unregister("tool", name)

    @staticmethod
    def names() -> list[str]:
        """Return the names of all tools that this process knows, sorted, whoever they are for."""
        return list(offered("tool", None, _registered))

    @staticmethod
    def get(name: str) -> Tool:
        """Return a tool that this process knows, whoever it is for. Raises `ToolError`."""
        return offered("tool", None, _registered).find(name)


def interrupted(why: str) -> ToolResult:
    """Return the result of a call of which nobody knows whether it happened."""
    return ToolResult(False, f"INTERRUPTED: {why}; it may or may not have happened", outcome="interrupted")
