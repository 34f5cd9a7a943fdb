"""A function as a tool: description, location, and execution of calls."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from lemming.capabilities.toolbox.functions.function_call import (
    FunctionResult,
    FunctionSpec,
    call_to_json,
    make_call_context,
    run_function,
)
from lemming.capabilities.toolbox.functions.function_import import FunctionLocation, find_location, get_source_location
from lemming.capabilities.toolbox.functions.signature import InvalidToolFunction, ToolSignature, parse_docstring
from lemming.capabilities.toolbox.functions.worker_pool import FunctionWorkers
from lemming.ext import ConfigError, LemmingError
from lemming.kernel.access.agent_files import write_effect
from lemming.kernel.access.allowed_paths import resolve_path
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import DiskError, InvalidArguments
from lemming.kernel.base.jsontext import did_you_mean, dump_compact
from lemming.kernel.base.redaction.secrets import redact_json, redact_untrusted, redact_values
from lemming.kernel.files.file_effects import FileEffect
from lemming.kernel.files.quota import FolderSize
from lemming.kernel.logging_config import EngineLog
from lemming.kernel.memory import make_memory_effect
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.org.resume import FileAccess
from lemming.kernel.tools import ANYWHERE, NOWHERE, Places, Tool, ToolResult
from lemming.kernel.tools.arguments import make_arguments_hint
from lemming.kernel.tools.tool_context import ToolContext
from lemming.kernel.tools.tool_definition import require_writable as require_granted_or_memory
from lemming.libraries.tool_decorator import TOOL_NAME, TOOL_NAME_RULE, get_declaration


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
        assert declaration, "only functions with @tool are loaded"
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
        state_keys = [f"state.{self.name}"] if self.signature.contexts else []
        self.own_memories = [*state_keys, *([cache_memory_key(self.name)] if declaration.cache_ticks else [])]
        self.place_arguments = self._get_path_arguments()

    def _get_path_arguments(self) -> Sequence[str]:
        parameter_names = [*self.parameters.get("properties", {})]
        for name in self.declared.places:
            if name not in parameter_names:
                message = f'places of {self.name} must name parameters, got "{name}"'
                names = ", ".join(parameter_names) or "none"
                hint = did_you_mean(name, parameter_names) or f"parameters of the function: {names}"
                raise InvalidToolFunction(message, where=self.where, hint=hint)
        return tuple(self.declared.places)

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
            return self._declared_places(agent, self.declared.reads, "reads")
        return NOWHERE if self.declared.independent else {ANYWHERE: f"tool {self.name}, which has no reads"}

    def write_paths(self, agent: Agent, settings: OrgSettings) -> Places:
        """Return the writable paths: as declared, none for an independent function, otherwise all."""
        if self.declared.writes is not None:
            return self._declared_places(agent, self.declared.writes, "writes")
        return super().write_paths(agent, settings)

    def _declared_places(self, agent: Agent, declared_paths: Sequence[str], access: str) -> Places:
        rules = {path: f"tool {self.name} {access} {path}" for path in declared_paths}
        return {paths.resolve_agent_path(agent.name, path): rule for path, rule in rules.items()}

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
        if ticks and (cached := _load_cache(context, ticks).get(_arguments_digest(arguments))):
            return ToolResult(True, cached["output"])
        if self.location is None:
            function_result = run_function(self.spec, arguments, context)
        else:
            request = call_to_json(self.location, self.spec, arguments, context)
            function_result = context.org.get_cache(FunctionWorkers).call(self, request, context)
        _log_call(self, context, function_result)
        result = attach_effects(self, context, function_result)
        if ticks and result.success:
            result = cache_result(context, arguments, result, ticks)
        return result if result.success else replace(result, on_error=self.on_error)

    def require_writable(self, context: ToolContext, effect: Any) -> None:
        """Raise unless an effect is a memory of the agent, or a result that is kept whole."""
        require_writable(context, effect, caller=self.name)


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
        failure = {"why": function_result.result.output, "steps": function_result.trace}
        log.warning("tool_failed", **facts, **redact_json(failure))


INDEPENDENT = frozenset({
    "agent", "base", "began_at", "call_id", "emit", "idempotency_key", "index", "limit_s", "log", "now", "place",
    "resolve_path", "settings", "stop", "tick", "tool", "workspace",
})  # fmt: skip
"""Fields of a `ToolContext` that no other call of the same reply changes."""


def can_share_state(function: Callable[..., Any], contexts: Collection[str]) -> bool:
    """Return False if a function's code provably uses no state changed by its other calls.

    `contexts`: the names of parameters receiving the `ToolContext`. A function may use such state if the
    context is passed on, or if the code cannot be read.
    """
    if not contexts:
        return False
    if hasattr(function, "__wrapped__"):  # the code that would be read is another function's
        return True
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return True
    harmless = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in INDEPENDENT and isinstance(node.ctx, ast.Load)
    }
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in contexts)
    return any(id(node) not in harmless for node in names)


# --- the effects of a call: memories, entries, and a long result as a file -----------------------
# Results may be cached for some ticks. The cache is a memory of the agent, `cache.<tool>`, which a person can read and delete.

RESULTS_FOLDER = "tool_results"
SAVED_LIMIT_BYTES = 1 << 20
"""Maximum bytes of a long result that are saved."""


def attach_effects(tool: Tool, context: ToolContext, function_result: FunctionResult) -> ToolResult:
    """Return a call's result with the requested effects, and with long output truncated."""
    requested = function_result.effects
    memories = requested.memories.items()
    effects = [make_memory_effect(context.agent.name, key, value, context.now) for key, value in memories]
    # before it is cut: half a secret looks like none
    result = replace(function_result.result, output=redact_untrusted(function_result.result.output))
    result = context.check_result(result) if context.check_result else result
    output, output_effects = truncate_output(context, result.output, tool.name, tool.output_limit_bytes)
    return replace(result, output=output, effects=(*effects, *output_effects), entries=tuple(requested.entries))


def truncate_output(context: ToolContext, text: str, tool: str, limit_bytes: int) -> tuple[str, tuple[FileEffect, ...]]:
    """Return a text cut for the prompt, with the effect that saves all of it if the workspace has room."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit_bytes:
        return raw.decode(), ()
    excerpt = raw[:limit_bytes].decode("utf-8", "ignore")
    note = f"[cut: the first {limit_bytes} of {len(raw)} bytes are shown"
    full_text = raw[:SAVED_LIMIT_BYTES].decode("utf-8", "ignore").encode()
    path = f"workspace/{RESULTS_FOLDER}/{context.tick:08d}-{context.index}-{tool}.txt"
    try:
        allowed_path = resolve_path(
            _with_access(context.agent, "./workspace"), context.base, path, "write", caller=tool
        )
        quota = context.settings.quota
        limits = FolderSize(quota.max_bytes, quota.max_files)
        effect = write_effect(allowed_path, full_text, context.staged, limits=limits, limit_bytes=SAVED_LIMIT_BYTES)
    except LemmingError as error:
        if isinstance(error, DiskError) and not error.concerns_one_file:
            raise  # not an error of the file
        return f"{excerpt}\n{note}; the rest is lost: {error}]", ()
    saved_part = "the whole is" if len(raw) <= SAVED_LIMIT_BYTES else f"the first {SAVED_LIMIT_BYTES} are"
    return f"{excerpt}\n{note}; {saved_part} in {path}]", (effect,)


def require_writable(context: ToolContext, effect: FileEffect, *, caller: str) -> None:
    """Raise unless a recorded effect would also be permitted for a call now."""
    agent, base, path = context.agent, context.base, f"{context.base}/{effect.path}"
    results_folder = f"{paths.workspace_folder(agent.name)}/{RESULTS_FOLDER}/"
    if not effect.root and effect.path.startswith(results_folder):
        allowed_path = resolve_path(_with_access(agent, "./workspace"), base, path, "write", caller=caller)
        limits = FolderSize(1 << 62, 1 << 62)
        write_effect(allowed_path, effect.content, {}, limits=limits, limit_bytes=SAVED_LIMIT_BYTES)
        return
    if effect.root or not effect.path.startswith(f"{paths.memory_folder(agent.name)}/"):
        resolve_path(_with_access(agent), base, path, "write", caller=caller)
    require_granted_or_memory(agent, base, context.settings, effect, caller=caller)


def _with_access(agent: Agent, *writable: str) -> Agent:
    """Return an agent with access to these folders only, for writing."""
    access = FileAccess(allow_read=[], allow_write=[*writable])
    return replace(agent, permissions=replace(agent.permissions, file_access=access))


# --- results that are kept for some ticks ---------------------------------------------------------

MAX_CACHED_RESULTS, MAX_CACHED_CHARS = 50, 100_000


def cache_memory_key(tool: str) -> str:
    """Return the key of the memory with a tool's cached results."""
    return f"cache.{tool}"


def cache_result(context: ToolContext, arguments: Mapping[str, Any], result: ToolResult, ticks: int) -> ToolResult:
    """Return a result with an effect that caches the result and evicts expired and excess results."""
    cache_entry = {"tick": context.tick, "args": dict(arguments), "output": redact_values(result.output)}
    cache = {**_load_cache(context, ticks), _arguments_digest(arguments): cache_entry}
    newest = sorted(cache.items(), key=lambda item: item[1]["tick"], reverse=True)[:MAX_CACHED_RESULTS]
    while len(newest) > 1 and sum(len(dump_compact(item)) for item in newest) > MAX_CACHED_CHARS:
        newest.pop()
    effect = make_memory_effect(context.agent.name, cache_memory_key(context.tool), dict(sorted(newest)), context.now)
    return replace(result, effects=(*result.effects, effect))


def _load_cache(context: ToolContext, ticks: int) -> dict[str, dict[str, Any]]:
    """Return the cached results within the age limit. Foreign values in the memory are ignored."""
    memory_value = context.memory.get(cache_memory_key(context.tool))
    return {
        digest: item
        for digest, item in (memory_value.items() if isinstance(memory_value, dict) else ())
        if isinstance(item, dict)
        and isinstance(item.get("output"), str)
        and isinstance(item.get("tick"), int)
        and 0 <= context.tick - item["tick"] <= ticks
    }


def _arguments_digest(arguments: Mapping[str, Any]) -> str:
    return sha256(dump_compact(dict(sorted(arguments.items())))).hexdigest()[:16]
