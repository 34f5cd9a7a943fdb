"""Tools: what an agent can do beside writing to its outbox and its memory.

A tool of your own derives from `Tool` and is registered with `ToolRegistry.register`. The eight that ship
live in `lemming/toolbox/`; they say what would change (`plan`) and leave the writing to the engine.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from lemming import paths
from lemming.agents import Agent, load_agent
from lemming.clock import SystemClock, timestamp
from lemming.config import Org, load_config
from lemming.deadlines import LeftBehind, run_on_thread
from lemming.errors import DiskError, LemmingError, PermissionDenied, ToolError
from lemming.files.effects import FileEffect, apply_effect
from lemming.files.jsontext import compact, nearest
from lemming.journal.ledger import amend_state, read_state
from lemming.plugins.errors import words_of
from lemming.plugins.registry import Registry

if TYPE_CHECKING:
    from lemming.arguments import Arguments


@dataclass(frozen=True)
class ToolResult:
    """What a call gave: whether it worked, and the text the agent reads.

    `effects` are files to be written, `passed_on` the credits that a new agent got out of its creator's; only
    tools of the engine use them.
    """

    success: bool
    output: str = ""
    effects: tuple[FileEffect, ...] = ()
    passed_on: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """Who calls, where, and when. `staged` holds what this turn will write, by `FileEffect.place`.

    `used_up` are the credits gone from the agent's allowance up to now (None: its ledger tells), `created` is
    how many agents this turn has made.
    """

    agent: Agent
    base: Path
    org: Org
    now: str
    staged: Mapping[str, bytes] = field(default_factory=dict)
    used_up: float | None = None
    created: int = 0


class Tool(ABC):
    """Something an agent can call. Its arguments are the keyword arguments of `execute`."""

    name: ClassVar[str]
    description: ClassVar[str]

    repeatable: ClassVar[bool] = False
    """Whether a call that was started and never finished may be run again after a crash."""

    always_allowed: ClassVar[bool] = False
    """Whether every agent may call it without naming it in `permissions.tools`."""

    success_is_news: ClassVar[bool] = True
    """Whether a call that worked wakes its agent (`wake: "changed"`) to read the result. One that only wrote
    what it was told to need not: the result is shown when the agent wakes for something else."""

    is_independent: ClassVar[bool] = False
    """Whether its calls neither look at nor change files that other agents touch. A turn whose tools are all
    independent need not wait for turns it has nothing to do with."""

    timeout_s: ClassVar[float | None] = None
    """Longest time a call may take; None: `tool_timeout_s` in `config/org.json`. A tool of your own that
    takes longer is left behind. The tools that ship end by themselves."""

    output_limit_bytes: ClassVar[int] = 32 << 10
    """Output beyond this is cut, and the cut is marked."""

    @abstractmethod
    def execute(self, agent_name: str, base_path: Path, *args: Any, **kwargs: Any) -> ToolResult:
        """Do it. Raise `ToolError` (or return `ToolResult(False, why)`) to tell the agent what went wrong.

        A tool may take `**kwargs`, or name its arguments; then they are checked before it is called.
        """

    def invoke(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        """Run a call whose arguments have been checked."""
        return self.execute(context.agent.name, context.base, **arguments)

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON Schema of the arguments, built from the signature. `**kwargs` takes any."""
        return self._arguments.schema

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments as the signature's types; raise `ToolError` that says which is wrong."""
        from lemming.arguments import WrongArguments

        try:
            return self._arguments.check(arguments)
        except WrongArguments as error:
            expected = f"arguments: {compact(self.parameters).decode()}"
            raise ToolError(f"{self.name}: {error}", hint=expected) from error

    @property
    def _arguments(self) -> Arguments:
        from lemming.arguments import arguments_of  # pydantic's models: not for a tick in which nobody is due

        return arguments_of(type(self).execute, 3)  # self, agent_name, base_path


class EngineTool(Tool):
    """A tool whose writing the engine does: `plan` reads, decides, and returns effects."""

    repeatable = True

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
        base = paths.as_base(base_path)
        context = ToolContext(
            agent=load_agent(base, agent_name),
            base=base,
            org=load_config(base).org,
            now=timestamp(SystemClock().now()),
        )
        try:
            if ToolRegistry.ships(self.name):
                allowed_tool(self.name, context.agent, context.org)
            result = self.plan(context, *args, **self.check(kwargs))
        except LemmingError as error:
            return ToolResult(False, str(error))
        if result.passed_on:  # first, so that no allowance is there twice
            state = read_state(base, agent_name)
            amend_state(base, agent_name, replace(state, passed_on=state.passed_on + result.passed_on))
        for effect in result.effects:
            apply_effect(base, effect)
        return result

    @property
    def _arguments(self) -> Arguments:
        from lemming.arguments import arguments_of

        return arguments_of(type(self).plan, 2)  # self, context


class ToolRegistry:
    """The tools by name: those that ship, and those that plugins register."""

    _built_in: ClassVar[dict[str, str]] = {
        "file_read": "lemming.toolbox.files:FileRead",
        "file_write": "lemming.toolbox.files:FileWrite",
        "file_list": "lemming.toolbox.files:FileList",
        "shell": "lemming.toolbox.shell:Shell",
        "memory_read": "lemming.toolbox.memories:MemoryRead",
        "memory_write": "lemming.toolbox.memories:MemoryWrite",
        "create_agent": "lemming.toolbox.staff:CreateAgent",
        "list_agents": "lemming.toolbox.staff:ListAgents",
    }
    _tools: ClassVar[Registry[Tool]] = Registry("tool", _built_in, lambda kind: kind())

    @classmethod
    def register(cls, tool: Tool) -> None:
        """Add a tool of your own, or a newer version of it.

        While a plugin is loaded it belongs to the organisations that name the plugin, else to the process.
        Raises `TypeError` for what is no usable tool, `ValueError` for the name of one that ships.
        """
        from pydantic.errors import PydanticUserError

        if not isinstance(tool, Tool):
            raise TypeError(f"register takes an instance of a Tool, not {tool!r}")
        if not getattr(tool, "name", "") or not getattr(tool, "description", ""):
            raise TypeError(f"{type(tool).__name__} needs a name and a description")
        if type(tool).__hash__ is None:
            raise TypeError(f'tool "{tool.name}" has no hash: a dataclass needs @dataclass(eq=False)')
        if tool.timeout_s is not None and not tool.timeout_s > 0:
            raise TypeError(f'tool "{tool.name}": timeout_s is {tool.timeout_s}; it must be more than 0')
        try:
            _ = tool.parameters
        except PydanticUserError as error:
            raise TypeError(
                f'tool "{tool.name}": an argument\'s type cannot come from JSON: {error}'
            ) from error
        cls._tools.register(tool.name, tool, type(tool))

    @classmethod
    def unregister(cls, name: str) -> None:
        """Take a registered tool away; those that ship stay."""
        cls._tools.pop(name)

    @classmethod
    def ships(cls, name: str) -> bool:
        """Return whether it is the name of a tool that comes with the engine."""
        return name in cls._built_in

    @classmethod
    def names(cls, plugins: Sequence[str] | None = None) -> list[str]:
        """Return all names, sorted; with `plugins`, those of an organisation that names these plugins."""
        return cls._tools.names(plugins)

    @classmethod
    def get(cls, name: str, plugins: Sequence[str] | None = None) -> Tool:
        """Return a tool; raise `ToolError` with the nearest name. `plugins` as in `names`."""
        if tool := cls._tools.find(name, plugins):
            return tool
        names = cls.names(plugins)
        raise ToolError(f'no tool "{name}"', hint=nearest(name, names) or f"tools: {', '.join(names)}")

    @classmethod
    def all(cls, plugins: Sequence[str] | None = None) -> Mapping[str, Tool]:
        """Return all tools by name, sorted: the same until one is registered. `plugins` as in `names`."""
        return cls._tools.all(plugins)


def allowed_tools(agent: Agent, org: Org) -> dict[str, Tool]:
    """Return the tools an agent may call, by name; names in its resume that no tool has are left out."""
    granted = agent.permissions.tools
    may_hire = agent.name in org.create_agent_allowed
    return {
        name: tool
        for name, tool in ToolRegistry.all(org.plugins).items()
        if tool.always_allowed or (name in granted and (may_hire or name != "create_agent"))
    }


def allowed_tool(name: str, agent: Agent, org: Org) -> Tool:
    """Return a tool that an agent may call; raise `ToolError` when it may not, or when there is none."""
    allowed = allowed_tools(agent, org)
    if name in allowed:
        return allowed[name]
    if name not in ToolRegistry.names(org.plugins):
        hint = nearest(name, list(allowed)) or f"your tools: {', '.join(allowed)}"
        raise ToolError(f'no tool "{name}"', hint=hint)
    if name == "create_agent" and name in agent.permissions.tools:
        setting = f"config/org.json create_agent_allowed {org.create_agent_allowed}"
        raise PermissionDenied(f"{name}: refused by {setting}")
    granted = ", ".join(agent.permissions.tools) or "none"
    raise PermissionDenied(f"{name}: refused by permissions.tools (granted: {granted})")


def unknown_outcome(why: str) -> str:
    """Return the output of a call of which nobody knows whether it happened."""
    return f"INTERRUPTED: {why}; it may or may not have happened"


def is_unknown_outcome(result: ToolResult) -> bool:
    """Return whether nobody knows if the call happened."""
    begins, _, ends = unknown_outcome("|").partition("|")
    return not result.success and result.output.startswith(begins) and result.output.endswith(ends)


def call_tool(
    name: str, arguments: Any, context: ToolContext, stop: threading.Event | None = None
) -> ToolResult:
    """Check and run one call. Whatever goes wrong inside becomes a failed result the agent can read.

    Raised is `LeftBehind`, when `stop` was set while a tool that does not ship ran and went on running, and a
    `DiskError` that says nothing about the call.
    """
    try:
        tool = allowed_tool(name, context.agent, context.org)
        if not isinstance(arguments, dict):
            raise ToolError(f"{name}: args must be an object")
        checked = tool.check(arguments)
        if ToolRegistry.ships(name):
            return _readable(tool, tool.invoke(context, checked))
        return _readable(tool, _in_time(tool, checked, context, stop))
    except LeftBehind:
        raise
    except DiskError as error:
        if isinstance(ToolRegistry.get(name), EngineTool) and not error.concerns_one_file:
            raise  # it says nothing about the call
        why = str(error)
    except LemmingError as error:
        why = str(error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the edge of a tool call: becomes a recorded result
        why = f"{name} failed: {words_of(error)}"
    return ToolResult(False, _cut(why, Tool.output_limit_bytes))


def _in_time(
    tool: Tool, arguments: dict[str, Any], context: ToolContext, stop: threading.Event | None
) -> ToolResult:
    """Run a tool of somebody's own, for as long as it may take."""
    limit_s = context.org.tool_timeout_s if tool.timeout_s is None else tool.timeout_s
    try:
        return run_on_thread(
            lambda: tool.invoke(context, arguments), limit_s, name=f"lemming-tool-{tool.name}", stop=stop
        )
    except LeftBehind:
        if stop is not None and stop.is_set():
            raise
    why = f"it took longer than {limit_s:g} s and was left behind"
    return ToolResult(False, f"{tool.name}: {why}" if tool.repeatable else unknown_outcome(why))


def _readable(tool: Tool, result: Any) -> ToolResult:
    """Return the result as text that can be recorded and shown, cut where it is too long."""
    if not isinstance(result, ToolResult):
        raise ToolError(f"{tool.name} returned {type(result).__name__}, not a ToolResult")
    if not isinstance(result.output, str):
        raise ToolError(f"{tool.name} returned output of type {type(result.output).__name__}, not text")
    if not isinstance(result.success, bool):
        raise ToolError(
            f"{tool.name} returned {type(result.success).__name__} for success, not true or false"
        )
    output = _cut(result.output, tool.output_limit_bytes)
    return (
        replace(result, output=output) if isinstance(tool, EngineTool) else ToolResult(result.success, output)
    )


def _cut(text: str, limit_bytes: int) -> str:
    """Return text that UTF-8 can hold, at most so much of it, and a note when that is not all."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit_bytes:
        return raw.decode("utf-8")
    kept = raw[:limit_bytes].decode("utf-8", "ignore")
    return f"{kept}\n[cut: the first {limit_bytes} of {len(raw)} bytes are shown]"
