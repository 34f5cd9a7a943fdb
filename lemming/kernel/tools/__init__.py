"""Tools: what an agent can do beside writing to its outbox and its memory.

A tool of your own derives from `Tool` and is registered with `ToolRegistry.register`. Those that ship live
below `lemming/capabilities/`; they say what would change (`plan`) and leave the writing to the engine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lemming.kernel.agents import Agent, Survey, latest_survey, load_agent
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.errors import InvalidArguments, LemmingError, Outcome, PermissionDenied, Problem
from lemming.kernel.base.errors import RecoverableError as RecoverableError
from lemming.kernel.base.errors import ToolError as ToolError
from lemming.kernel.base.jsontext import compact
from lemming.kernel.base.kinds import OnError
from lemming.kernel.base.kinds import ToolClass as ToolClass
from lemming.kernel.base.patterns import is_named
from lemming.kernel.base.redaction.secrets import redact_content
from lemming.kernel.journal.ledger import amend_state, read_state
from lemming.kernel.journal.verdicts import GateVerdict
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
from lemming.kernel.tools.arguments import Arguments, WrongArguments, arguments_of, require_fitting
from lemming.kernel.tools.classes import require_usable
from lemming.kernel.tools.toolset import OwnToolset, ServerSource, Toolset, ToolSource

if TYPE_CHECKING:
    from lemming.kernel.base.contract import NewEntry
    from lemming.kernel.files.effects import FileEffect
    from lemming.kernel.tools.context import ToolContext

Places = Mapping[str, str]
"""Files and folders, each with what allows it: relative to the organisation (`shared/news`), or absolute. `/`
is any file there is. In `agents/*/resume.json` the star is no pattern: it stands for the resumes of all."""

ANYWHERE = "/"
NOWHERE: Places = {}
INFERRED: Any = ""


@dataclass(frozen=True)
class ToolResult:
    """What a call gave: whether it worked, and the text the agent reads. `outcome` follows from `success`.

    `entries` are to go into the caller's outbox, `attempts` says how often it was tried, `on_error` what
    its failing means. Only the engine and its tools use `effects` (files to be written), `passed_on` (credits
    for a new agent), `trust`, `verdicts` (of gates), `entries_by` (the
    capability that wrote its entries), and `kept` (what capabilities keep with the call, by their names).
    """

    success: bool
    output: str = ""
    effects: tuple[FileEffect, ...] = ()
    passed_on: float = 0.0
    outcome: Outcome = INFERRED
    entries: tuple[NewEntry, ...] = ()
    attempts: int = 1
    on_error: OnError = "return"
    trust: Mapping[str, Any] = field(default_factory=dict, compare=False)
    verdicts: tuple[GateVerdict, ...] = ()
    entries_by: str = ""
    kept: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.outcome == INFERRED:
            object.__setattr__(self, "outcome", "ok" if self.success else "failed")


class Tool(ABC):
    """Something an agent can call. Its arguments are the keyword arguments of `execute`.

    What the engine must know of a tool, the tool says itself, below. What it does not say is taken to be the
    worst: it may run any code, touch any file, and not be run twice.
    """

    name: str
    description: str

    tool_class: ToolClass = "execute"
    """What a call can do at worst."""

    repeatable: bool = False
    """Whether a call that was started and never finished may be run again after a crash."""

    always_allowed: bool = False
    """Whether every agent may call it without naming it in `permissions.tools`."""

    success_is_news: bool = True
    """Whether a call that worked wakes its agent (`wake: "changed"`) to read the result. One that only wrote
    what it was told to need not: the result is shown when the agent wakes for something else."""

    is_independent: bool = False
    """Whether its calls touch no file that others do: a turn with such tools alone need not wait for them."""

    parallel: bool = False
    """Whether calls of one reply may run at once: none needs what the other gives, and each may run again."""

    timeout_s: float | None = None
    """Longest time a call may take; None: `tool_timeout_s` in `config/org.json`. A call that takes longer is
    left behind on its thread, which nothing can end from outside."""

    keeps_deadline: bool = False
    """Whether its calls end in time by themselves, so that they need no thread of their own."""

    output_limit_bytes: int = 32 << 10
    """Output beyond this is cut, and the cut is marked."""

    stages_files: bool = False
    """Whether its results may hold files and entries, which the engine writes."""

    place_arguments: Sequence[str] = ()
    """Arguments that name files or folders as `file_read` takes them: gates see the place that is opened."""

    own_memories: Sequence[str] = ()
    """Keys of memories that its calls keep for themselves: prompts do not show them."""

    @abstractmethod
    def execute(self, agent_name: str, base_path: Path, *args: Any, **kwargs: Any) -> ToolResult:
        """Do it. Raise `ToolError` (or return `ToolResult(False, why)`) to tell the agent what went wrong.

        A tool may take `**kwargs`, or name its arguments; then they are checked before it is called.
        """

    def invoke(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        """Run a call whose arguments have been checked."""
        return self.execute(context.agent.name, context.base, **arguments)

    def why_refused(self, agent: Agent, settings: Org) -> str:
        """Return the rule by which an agent may not call it; empty when it may."""
        permissions = agent.permissions
        if self.always_allowed or self.name in permissions.tools:
            return ""
        if any(is_named(self.name, pattern) for pattern in permissions.tool_patterns):
            return ""
        return f"refused by permissions.tools (granted: {', '.join(agent.permissions.tools) or 'none'})"

    def require_granted(self, agent: Agent, settings: Org) -> None:
        """Raise `PermissionDenied` with the rule by which an agent may not call it."""
        if why := self.why_refused(agent, settings):
            raise PermissionDenied(f"{self.name}: {why}")

    def reads(self, agent: Agent, settings: Org) -> Places:
        """Return what an agent's calls may look at, of what others may change in the same tick."""
        return NOWHERE

    def writes(self, agent: Agent, settings: Org) -> Places:
        """Return what an agent's calls may change outside its own folder."""
        if self.is_independent:
            return NOWHERE
        return {ANYWHERE: f"tool {self.name}, which does not say that it is independent"}

    def reaches_outside(self, settings: Org) -> str:
        """Return what its calls may do beyond the organisation, as in "lets ada run ..."; empty: nothing.

        Asked of tools that ship: importing a plugin is itself what a person has to agree to.
        """
        return ""

    def require_writable(self, context: ToolContext, effect: FileEffect) -> None:
        """Raise unless an effect that a journal tells of is one that a call could give now.

        That is a memory of the agent, or a file that its grants cover.
        """
        from lemming.kernel.access.recorded_effects import require_writable

        if not self.stages_files:
            raise PermissionDenied(f"{self.name} has no files written by the engine")
        require_writable(context.agent, context.base, context.settings, effect, caller=self.name)

    def source(self, agent_name: str, arguments: Mapping[str, Any]) -> str:
        """Return the file whose content a call gives, as in `Places`; empty when it gives none, or many."""
        return ""

    @property
    def is_planned(self) -> bool:
        """Whether calls only tell the engine what to write: planning one changes nothing, and tells it."""
        return False

    @property
    def defined_by(self) -> Any:
        """The class or function that stands behind it."""
        return type(self)

    @property
    def origin(self) -> str:
        """Where it is defined, for people: `file:line`, else the class."""
        return f"{type(self).__module__}.{type(self).__qualname__}"

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON Schema of the arguments, built from the signature. `**kwargs` takes any."""
        return self._arguments.schema

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments as the signature's types; raise `InvalidArguments` that says what is wrong.

        They are held to `parameters` too, where a class of somebody's own says those itself.
        """
        try:
            if self.says_parameters:
                require_fitting(self.parameters, arguments)
            return self._arguments.check(arguments)
        except WrongArguments as error:
            expected = f"arguments: {compact(self.parameters).decode()}"
            raise InvalidArguments(f"{self.name}: {error}", hint=expected) from error

    @property
    def says_parameters(self) -> bool:
        """Whether its class says by hand what its arguments are, and leaves the check to the engine."""
        return type(self).parameters is not Tool.parameters and type(self).check is Tool.check

    @property
    def _arguments(self) -> Arguments:
        return arguments_of(type(self).execute, 3)  # self, agent_name, base_path


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
            toolset=toolset_of(settings, org),
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
    return org.own(OwnToolset).refresh(base, SHIPPED, _sources(org, named), settings)


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
