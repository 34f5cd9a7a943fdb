"""Tools: what an agent can do beside writing to its outbox and its memory.

A tool of your own derives from `Tool` and is registered with `ToolRegistry.register`. The eight that ship
live in `lemming/toolbox/`; they say what would change (`plan`) and leave the writing to the engine.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError, create_model

from lemming import paths
from lemming.agents import Agent, load_agent
from lemming.clock import SystemClock, timestamp
from lemming.config import Org, load_config
from lemming.effects import FileEffect, apply_effect
from lemming.errors import LemmingError, PermissionDenied, ToolError
from lemming.jsontext import nearest


@dataclass(frozen=True)
class ToolResult:
    """What a call gave: whether it worked, and the text the agent reads.

    `effects` are files to be written; only tools of the engine use them.
    """

    success: bool
    output: str = ""
    effects: tuple[FileEffect, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """Who calls, where, and when. `staged` holds what this turn will write, by `FileEffect.place`."""

    agent: Agent
    base: Path
    org: Org
    now: str
    staged: Mapping[str, bytes] = field(default_factory=dict)


class Tool(ABC):
    """Something an agent can call. Arguments are the keyword arguments of `execute`."""

    name: ClassVar[str]
    description: ClassVar[str]

    repeatable: ClassVar[bool] = False
    """Whether a call that was started and never finished may be run again after a crash."""

    always_allowed: ClassVar[bool] = False
    """Whether every agent may call it without naming it in `permissions.tools`."""

    @abstractmethod
    def execute(self, agent_name: str, base_path: Path, **kwargs: Any) -> ToolResult:
        """Do it. Raise `ToolError` (or return `ToolResult(False, why)`) to tell the agent what went wrong."""

    def invoke(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        """Run a call whose arguments have been checked."""
        return self.execute(context.agent.name, context.base, **arguments)

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON Schema of the arguments, built from the signature."""
        return _arguments_of(type(self)).json_schema()

    def check(self, arguments: dict[str, Any]) -> None:
        """Raise `ToolError` that says which argument is wrong and what was expected."""
        try:
            _arguments_of(type(self)).validate_python(arguments, strict=True)
        except ValidationError as error:
            problems = "; ".join(_argument_problem(item) for item in error.errors(include_url=False)[:5])
            raise ToolError(f"{self.name}: {problems}", hint=f"arguments: {self.parameters}") from error


class EngineTool(Tool):
    """A tool whose writing the engine does: `plan` reads, decides, and returns effects."""

    repeatable = True

    @abstractmethod
    def plan(self, context: ToolContext, **kwargs: Any) -> ToolResult:
        """Return the result and the effects. Raise `ToolError` to tell the agent what went wrong."""

    def invoke(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        """Plan the call; the engine writes its effects."""
        return self.plan(context, **arguments)

    def execute(self, agent_name: str, base_path: Path, **kwargs: Any) -> ToolResult:
        """Plan the call and write its effects at once: the tool without an engine around it."""
        base = paths.as_base(base_path)
        context = ToolContext(
            agent=load_agent(base, agent_name),
            base=base,
            org=load_config(base).org,
            now=timestamp(SystemClock().now()),
        )
        try:
            self.check(kwargs)
            result = self.plan(context, **kwargs)
        except ToolError as error:
            return ToolResult(False, str(error))
        for effect in result.effects:
            apply_effect(base, effect)
        return result


class ToolRegistry:
    """The tools by name: those that ship, and those that plugins register."""

    _tools: ClassVar[dict[str, Tool]] = {}
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

    @classmethod
    def register(cls, tool: Tool) -> None:
        """Add a tool, or replace the one of the same name."""
        cls._tools[tool.name] = tool

    @classmethod
    def names(cls) -> list[str]:
        """Return all names, sorted."""
        return sorted({*cls._built_in, *cls._tools})

    @classmethod
    def get(cls, name: str) -> Tool:
        """Return a tool; raise `ToolError` with the nearest name."""
        if name not in cls._tools:
            if name not in cls._built_in:
                hint = nearest(name, cls.names()) or f"tools: {', '.join(cls.names())}"
                raise ToolError(f'no tool "{name}"', hint=hint)
            module, _, class_name = cls._built_in[name].partition(":")
            cls._tools[name] = getattr(import_module(module), class_name)()
        return cls._tools[name]


def allowed_tools(agent: Agent, org: Org) -> dict[str, Tool]:
    """Return the tools an agent may call, by name; names in its resume that no tool has are left out."""
    granted = set(agent.permissions.tools)
    if agent.name not in org.create_agent_allowed:
        granted.discard("create_agent")
    tools = {
        name: ToolRegistry.get(name) for name in ToolRegistry.names() if name in granted or _is_free(name)
    }
    return dict(sorted(tools.items()))


def call_tool(name: str, arguments: Any, context: ToolContext) -> ToolResult:
    """Check and run one call. Whatever goes wrong inside becomes a failed result the agent can read."""
    try:
        tool = ToolRegistry.get(name)
        if name not in allowed_tools(context.agent, context.org):
            raise _not_allowed(name, context)
        if not isinstance(arguments, dict):
            raise ToolError(f"{name}: args must be an object")
        tool.check(arguments)
        result: Any = tool.invoke(context, arguments)
    except LemmingError as error:
        return ToolResult(False, str(error))
    except Exception as error:  # noqa: BLE001 - the edge of a tool call: becomes a recorded result
        return ToolResult(False, f"{name} failed: {type(error).__name__}: {error}")
    if isinstance(result, ToolResult):
        return result
    return ToolResult(False, f"{name} returned {type(result).__name__}, not a ToolResult")


def _is_free(name: str) -> bool:
    return name in ("memory_read", "memory_write", "list_agents") or (
        name in ToolRegistry._tools and ToolRegistry._tools[name].always_allowed
    )


def _not_allowed(name: str, context: ToolContext) -> PermissionDenied:
    if name == "create_agent" and name in context.agent.permissions.tools:
        return PermissionDenied(
            f"{name}: refused by config/org.json create_agent_allowed {context.org.create_agent_allowed}"
        )
    granted = ", ".join(context.agent.permissions.tools) or "none"
    return PermissionDenied(f"{name}: refused by permissions.tools (granted: {granted})")


@cache
def _arguments_of(tool: type[Tool]) -> TypeAdapter[Any]:
    """Return the validator of a tool's arguments; a signature with `**kwargs` takes any key."""
    method = tool.plan if issubclass(tool, EngineTool) else tool.execute
    parameters = list(inspect.signature(method, eval_str=True).parameters.values())
    skip = 2 if issubclass(tool, EngineTool) else 3
    fields: dict[str, Any] = {
        parameter.name: (
            Any if parameter.annotation is parameter.empty else parameter.annotation,
            ... if parameter.default is parameter.empty else parameter.default,
        )
        for parameter in parameters[skip:]
        if parameter.kind is not parameter.VAR_KEYWORD
    }
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    config = ConfigDict(extra="allow" if open_ended else "forbid", title="arguments")
    return TypeAdapter(create_model("arguments", __config__=config, **fields))


def _argument_problem(item: Any) -> str:
    name = ".".join(str(part) for part in item["loc"]) or "args"
    if item["type"] == "missing":
        return f'"{name}" is required'
    if item["type"] == "extra_forbidden":
        return f'unknown argument "{name}"'
    return f'"{name}": {item["msg"][0].lower()}{item["msg"][1:]}'
