"""A function as a tool: description, location, and execution of calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lemming.capabilities.toolbox.functions import function_effects
from lemming.capabilities.toolbox.functions.cached_values import can_share_state
from lemming.capabilities.toolbox.functions.docstrings import parse_docstring
from lemming.capabilities.toolbox.functions.function_call import (
    FunctionResult,
    FunctionSpec,
    make_call_context,
    run_function,
)
from lemming.capabilities.toolbox.functions.function_import import FunctionLocation, find_location, get_source_location
from lemming.capabilities.toolbox.functions.signature import InvalidToolFunction, ToolSignature
from lemming.capabilities.toolbox.functions.worker_pool import FunctionWorkers
from lemming.capabilities.toolbox.functions.worker_protocol import call_to_json
from lemming.ext import ConfigError
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import InvalidArguments
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.base.paths import resolve_agent_path
from lemming.kernel.base.redaction.secrets import redact_json
from lemming.kernel.logging_config import EngineLog
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.tools import ANYWHERE, NOWHERE, Places, Tool, ToolResult
from lemming.kernel.tools.arguments import make_arguments_hint
from lemming.kernel.tools.tool_context import ToolContext
from lemming.kernel.tools.tool_decorator import TOOL_NAME, TOOL_NAME_RULE, get_declaration


class FunctionTool(Tool):
    """A tool defined by a function with `@tool`.

    `base` is the organisation with the function's file, and `home` the location for another process. A
    function without a location runs on a thread. Raises `InvalidToolFunction` for an unusable function.
    """

    stages_files = True

    def __init__(
        self, function: Callable[..., Any], *, base: Path | None = None, location: FunctionLocation | None = None
    ) -> None:
        declaration = get_declaration(function)
        assert declaration, "a function with @tool"
        self.function, self.base, self.declared = function, base, declaration
        self.where = get_source_location(function, base)
        self.name = declaration.name or function.__name__
        if not TOOL_NAME.match(self.name):
            raise InvalidToolFunction(f"{self.name!r}: {TOOL_NAME_RULE}", where=self.where)
        docstring = parse_docstring(function)
        self.signature = ToolSignature(function, docstring.parameters, self.where)
        self.description = declaration.description or docstring.text or self.name.replace("_", " ")
        self.tool_class, self.repeatable = declaration.tool_class, declaration.repeatable
        self.timeout_s, self.on_error = declaration.timeout_s, declaration.on_error
        self.attempts = declaration.attempts if declaration.repeatable else 1
        self.success_is_news = declaration.success_is_news
        # The state of one call is for the next: such calls run one after the other.
        is_sequential = declaration.cache_ticks > 0 or can_share_state(function, self.signature.contexts)
        self.parallel = declaration.parallel and not is_sequential
        self.is_independent = declaration.independent or declaration.writes is not None
        self.location = (location or find_location(function)) if declaration.process else None
        self.keeps_deadline = self.location is not None
        self.own_memories = self._list_own_memories()
        self.place_arguments = self._get_path_arguments()

    def _get_path_arguments(self) -> Sequence[str]:
        parameter_names = [*self.parameters.get("properties", {})]
        for name in self.declared.places:
            if name not in parameter_names:
                message = f'places of {self.name} must name parameters, got "{name}"'
                hint = (
                    did_you_mean(name, parameter_names)
                    or f"parameters of the function: {', '.join(parameter_names) or 'none'}"
                )
                raise InvalidToolFunction(message, where=self.where, hint=hint)
        return tuple(self.declared.places)

    def _list_own_memories(self) -> Sequence[str]:
        state_keys = [f"state.{self.name}"] if self.signature.contexts else []
        return [*state_keys, function_effects.cache_memory_key(self.name)] if self.declared.cache_ticks else state_keys

    @property
    def definition(self) -> Any:
        """The function."""
        return self.function

    @property
    def origin(self) -> str:
        """The source location: `file:line`."""
        return self.where

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON Schema of the arguments, built from the signature."""
        return self.signature.schema

    def parse_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return valid arguments unchanged, for the worker to convert. Raise `InvalidArguments` with all others."""
        self.parse_native(arguments)
        return arguments

    def parse_native(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as the function's types. Raise `InvalidArguments`."""
        try:
            return self.signature.parse_arguments(arguments)
        except ValueError as error:
            hint = make_arguments_hint(self.parameters, arguments)
            raise InvalidArguments(f"{self.name}: {error}", hint=hint) from error

    def read_paths(self, agent: Agent, settings: OrgSettings) -> Places:
        """Return the readable paths: as declared, none for an independent function, otherwise all."""
        if self.declared.reads is not None:
            return self._declared_path_rules(agent, self.declared.reads, "reads")
        return NOWHERE if self.declared.independent else {ANYWHERE: f"tool {self.name}, which has no reads"}

    def write_paths(self, agent: Agent, settings: OrgSettings) -> Places:
        """Return the writable paths: as declared, none for an independent function, otherwise all."""
        if self.declared.writes is not None:
            return self._declared_path_rules(agent, self.declared.writes, "writes")
        return super().write_paths(agent, settings)

    def _declared_path_rules(self, agent: Agent, declared_paths: Sequence[str], access_name: str) -> Places:
        return {
            resolve_agent_path(agent.name, path): f"tool {self.name} {access_name} {path}" for path in declared_paths
        }

    def execute(self, agent_name: str, base_path: Path, *args: Any, **kwargs: Any) -> ToolResult:
        """Call the function directly, without a context."""
        if self.signature.contexts:
            raise ConfigError(f"{self.name} requires a context: use `lemming tools call {self.name}`")
        return ToolResult(True, str(self.function(*args, **kwargs)))

    @property
    def spec(self) -> FunctionSpec:
        """The function as needed for calls."""
        contexts, attempts = self.signature.contexts, self.attempts
        return FunctionSpec(self.function, self.name, contexts, attempts, self.base, self.parse_native)

    def invoke(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        """Return a cached result, or run the call, in a separate process if possible."""
        context = make_call_context(context, self.name)
        ticks = self.declared.cache_ticks
        if ticks and (cached := function_effects.get_cached_result(context, arguments, ticks)) is not None:
            return cached
        function_result = self._run_call(context, arguments)
        _log_call(self, context, function_result)
        result = function_effects.attach_effects(self, context, function_result)
        if ticks and result.success:
            result = function_effects.cache_result(context, arguments, result, ticks)
        return result if result.success else replace(result, on_error=self.on_error)

    def _run_call(self, context: ToolContext, arguments: dict[str, Any]) -> FunctionResult:
        if self.location is None:
            return run_function(self.spec, arguments, context)
        request = call_to_json(self.location, self.spec, arguments, context)
        return context.org.get_cache(FunctionWorkers).call(self, request, context)

    def require_writable(self, context: ToolContext, effect: Any) -> None:
        """Raise unless an effect is a memory of the agent, or a result that is kept whole."""
        function_effects.require_writable(context, effect, caller=self.name)


def _log_call(tool: FunctionTool, context: ToolContext, function_result: FunctionResult) -> None:
    """Write the messages of a call, and the stack frames of an error, into the engine's log."""
    if not function_result.effects.lines and not function_result.trace:
        return
    facts: dict[str, Any] = {"tick": context.tick, "agent": context.agent.name, "tool": tool.name}
    log = EngineLog(context.base)
    for level, message, fields in function_result.effects.lines:
        write = log.warning if level == "warning" else log.info
        write("tool_said", **redact_json({**fields, **facts, "said": message}))
    if function_result.trace:
        log.warning(
            "tool_failed",
            **facts,
            **redact_json({"why": function_result.result.output, "steps": function_result.trace}),
        )
