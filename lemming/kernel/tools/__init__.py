"""Tools: the actions of an agent besides writing to its outbox and its memory.

A custom tool derives from `Tool` and is registered with `ToolRegistry.register`. Shipped tools live below
`lemming/capabilities/`; they return their changes from `plan` and leave the writing to the engine.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from lemming.kernel.agents import Agent, Survey, get_latest_survey, load_agent
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.entry_kinds import ToolClass as ToolClass
from lemming.kernel.base.errors import LemmingError, Problem
from lemming.kernel.base.errors import RecoverableError as RecoverableError
from lemming.kernel.base.errors import ToolError as ToolError
from lemming.kernel.base.name_patterns import is_match
from lemming.kernel.base.redaction.secrets import redact_content
from lemming.kernel.journal.ledger import amend_state, read_state
from lemming.kernel.org.config import OrgSettings, load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.plugins.capability_loader import load_provided, missing_for_tool, missing_reason, server_capability
from lemming.kernel.plugins.capability_table import PREFIXES, provided
from lemming.kernel.plugins.plugin_registry import MARK, collect_items, register, unregister
from lemming.kernel.tools.arguments import Arguments, get_arguments
from lemming.kernel.tools.tool_definition import ANYWHERE as ANYWHERE
from lemming.kernel.tools.tool_definition import NOWHERE as NOWHERE
from lemming.kernel.tools.tool_definition import Places as Places
from lemming.kernel.tools.tool_definition import Tool as Tool
from lemming.kernel.tools.tool_definition import ToolResult as ToolResult
from lemming.kernel.tools.toolset import SHIPPED as SHIPPED
from lemming.kernel.tools.toolset import OrgToolset, ServerSource, Toolset, ToolSource

if TYPE_CHECKING:
    from lemming.kernel.tools.tool_context import ToolContext


class EngineTool(Tool):
    """A tool with writes made by the engine: `plan` reads, decides, and returns effects."""

    repeatable = True
    stages_files = True

    def write_paths(self, agent: Agent, settings: OrgSettings) -> Places:
        """Return the paths outside the agent's own folder that its calls may change."""
        return NOWHERE

    @property
    def is_plan_only(self) -> bool:
        """True if the tool only writes through the engine; a request to a server cannot be planned."""
        return self.tool_class in ("write", "administer")

    @abstractmethod
    def plan(self, context: ToolContext, *args: Any, **kwargs: Any) -> ToolResult:
        """Return the result and the effects. Raise `ToolError` to report a failure to the agent."""

    def invoke(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        """Plan the call; the engine writes the effects."""
        return self.plan(context, **arguments)

    def execute(self, agent_name: str, base_path: Path, *args: Any, **kwargs: Any) -> ToolResult:
        """Plan the call and write its effects immediately, without a running engine.

        The agent's permissions apply here too. Raises `ConfigError` for an unknown agent.
        """
        from lemming.kernel.files.file_effects import apply_effect
        from lemming.kernel.tools.tool_context import ToolContext

        org = Organisation.from_path(base_path)
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
            result = self.plan(context, *args, **self.parse_arguments(kwargs))
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
        return get_arguments(type(self).plan, 2)  # self, context


def get_toolset(settings: OrgSettings, org: OrgPath | None = None) -> Toolset:
    """Return the tools of an organisation with the settings, the same object until the tools change.

    Without `org`, only tools shared between organisations. Raises `ConfigError` if the organisation's own
    tools, loaded for the first time, are invalid.
    """
    base = collect_items("tool", tuple(settings.plugins), Toolset)
    if org is None:
        return base
    organisation = Organisation.from_path(org)
    if not (sources := _find_sources(settings, get_latest_survey(organisation))):
        return base
    return organisation.get_cache(OrgToolset).get_toolset(base, _get_sources(organisation, sources), settings)


def refresh_tools(settings: OrgSettings, org: Organisation) -> list[Problem]:
    """Reload the organisation's own tools at the start of a tick, and return problems to report.

    After a failed reload the previous tools stay. Raises `ConfigError` without previous tools.
    """
    if not (sources := _find_sources(settings, get_latest_survey(org))):
        return []
    base = collect_items("tool", tuple(settings.plugins), Toolset)
    return [*org.get_cache(OrgToolset).refresh(base, _get_sources(org, sources), settings)]


def has_own_tools(settings: OrgSettings, survey: Survey) -> bool:
    """Return True if an organisation may have tools of its own, so `get_toolset` needs to load them."""
    return bool(_find_sources(settings, survey))


def _find_sources(settings: OrgSettings, survey: Survey) -> list[str]:
    """Return the sources of the organisation's own tools: those that agents or the settings name."""
    sources = []
    for source, (name, _) in provided("tool_sources").items():
        if source not in PREFIXES:
            is_used = bool(getattr(settings, source))
        else:  # agents that name tools of a missing capability are excluded
            is_named = survey.has_server_tools and any(tool.startswith(source) for tool in survey.by_tool)
            is_used = is_named and not missing_reason(name)
        sources += [source] if is_used else []
    return sources


def _get_sources(org: Organisation, sources: Iterable[str]) -> list[ToolSource]:
    return [org.get_cache(load_provided("tool_sources", source)) for source in sources]


def get_server_sources(org: OrgPath) -> dict[str, ServerSource]:
    """Return the available sources of server tools, by capability."""
    organisation = Organisation.from_path(org)
    owners = {provided("tool_sources")[prefix][0]: prefix for prefix in PREFIXES}
    available = [name for name in owners if not missing_reason(name)]
    return {name: organisation.get_cache(load_provided("tool_sources", owners[name])) for name in available}


def missing_server_tool_reason(org: OrgPath, pattern: str, *, today: bool = False) -> tuple[str, str] | None:
    """Return problem and hint if no server has a matching tool, as `ServerSource.missing_tool_reason` does."""
    if missing := missing_for_tool(pattern):
        return f'tool "{pattern}" is not available: {missing}', "install lemming-engine again"
    return get_server_sources(org)[server_capability(pattern)].missing_tool_reason(pattern, today=today)


def iter_shipped_tools(names: Sequence[str]) -> Iterator[Tool]:
    """Return the shipped tools that match names or patterns as in `permissions.tools`."""
    matching_names = [name for name in SHIPPED if any(is_match(name, pattern) for pattern in names)]
    return map(ToolRegistry.get, matching_names)


class ToolRegistry:
    """Registration of tools by plugins and by host programs of the engine.

    The registry keeps no state, and organisations get their tools from a `Toolset` instead.
    """

    @staticmethod
    def register(tool: Tool | Callable[..., Any]) -> None:
        """Register a custom tool or a newer version: a `Tool`, or a function with `@tool`.

        While a plugin is loading, the tool is available to organisations with this plugin, otherwise to the
        whole process. Raises `TypeError` for an unusable tool, and `ValueError` for the name of a shipped
        tool.
        """
        if inspect.isfunction(tool) and MARK in vars(tool):
            tool = load_provided("function_tools", "function")(tool)
        if not isinstance(tool, Tool):
            raise TypeError(f"register expects an instance of a Tool, got {tool!r}")
        require_usable(tool)
        register("tool", tool.name, tool, defined_by=tool.definition, shipped=SHIPPED)

    @staticmethod
    def unregister(name: str) -> None:
        """Remove a registered tool; shipped tools cannot be removed."""
        unregister("tool", name)

    @staticmethod
    def names() -> list[str]:
        """Return the names of all tools in this process, sorted, for any organisation."""
        return list(collect_items("tool", None, Toolset))

    @staticmethod
    def get(name: str) -> Tool:
        """Return a tool of this process, for any organisation. Raises `ToolError` for an unknown name."""
        return collect_items("tool", None, Toolset).find(name)


def interrupted_result(reason: str) -> ToolResult:
    """Return the result of a call with an unknown outcome."""
    return ToolResult(False, f"INTERRUPTED: {reason}; it may or may not have happened", outcome="interrupted")


def require_usable(tool: Any) -> None:
    """Raise `TypeError` with the reason for an unusable tool."""
    from pydantic.errors import PydanticUserError

    if not getattr(tool, "name", "") or not getattr(tool, "description", ""):
        raise TypeError(f"{type(tool).__name__} must have a name and a description")
    about = f'tool "{tool.name}"'
    if type(tool).__hash__ is None:
        raise TypeError(f"{about} must be hashable: a dataclass needs @dataclass(eq=False)")
    if tool.tool_class not in get_args(ToolClass):
        raise TypeError(f"{about}: tool_class must be one of {get_args(ToolClass)}, got {tool.tool_class!r}")
    if tool.parallel and not tool.repeatable:
        raise TypeError(f"{about}: a parallel tool must be repeatable: a kill leaves open which of its calls were made")
    if tool.timeout_s is not None and not tool.timeout_s > 0:
        raise TypeError(f"{about}: timeout_s must be more than 0, got {tool.timeout_s}")
    try:
        parameters = tool.parameters
    except PydanticUserError as error:
        raise TypeError(f"{about}: an argument must have a type for JSON: {error}") from error
    if tool.has_custom_schema:
        from lemming.kernel.base.json_schema.schema_violations import find_schema_flaw  # only with a schema by hand

        if not isinstance(parameters, dict):
            raise TypeError(f"{about}: parameters must be a JSON Schema, got {type(parameters).__name__}")
        flaw, inside = find_schema_flaw(parameters)
        if flaw:
            raise TypeError(f"{about}: parameters{inside} must be a JSON Schema: {flaw}")
    properties = parameters.get("properties", {})
    for name in tool.place_arguments:
        if name not in properties and not parameters.get("additionalProperties"):
            argument_names = ", ".join(properties) or "none"
            raise TypeError(f'{about}: place_arguments must name arguments ({argument_names}), got "{name}"')
