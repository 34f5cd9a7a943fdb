"""Run a call of a function tool in any process: prepare arguments, retry, and convert the result."""

from __future__ import annotations

import copy
import inspect
import math
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lemming.capabilities.toolbox.functions.function_import import FunctionLocation
from lemming.ext import NewEntry
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import DiskError, InvalidArguments, Outcome, ProviderError, RecoverableError, ToolError
from lemming.kernel.files.disk_errors import require_about_one_file
from lemming.kernel.files.fast_decoder import fit_value
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.provider_errors import describe_exception, is_custom_file, to_provider_error
from lemming.kernel.tools import ToolResult
from lemming.kernel.tools.tool_context import RequestedEffects, ToolContext

MIN_PAUSE_S, MAX_PAUSE_S = 0.1, 5.0
MAX_FRAMES = 8


@dataclass
class FunctionResult:
    """The outcome of a call: the result, the requested effects, and the stack frames of an error for the log."""

    result: ToolResult
    effects: RequestedEffects
    trace: str = ""
    needs_end: bool = False  # the process is not to be used again


def copy_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of arguments that a function may modify: a retry receives the original values."""
    return copy.deepcopy(dict(arguments))


@dataclass(frozen=True)
class FunctionSpec:
    """A function as needed for calls. `contexts`: the names of parameters receiving the `ToolContext`.

    `to_native_types` converts arguments to the function's parameter types. The default suits JSON types.
    """

    function: Callable[..., Any]
    name: str
    contexts: Sequence[str]
    attempts: int
    base: Path | None
    to_native_types: Callable[[Mapping[str, Any]], dict[str, Any]] = copy_arguments


def make_call_context(context: ToolContext, tool: str) -> ToolContext:
    """Return a context for a call of a tool, without any requested effects yet."""
    return replace(context, tool=tool, requested=RequestedEffects())


def run_function(spec: FunctionSpec, arguments: Mapping[str, Any], context: ToolContext) -> FunctionResult:
    """Run a call. An error becomes the call's result, and the requested effects are dropped.

    Raises `DiskError` if the organisation's disk fails during the call, because such an error says nothing
    about the call.
    """
    attempts = 0

    def run_once() -> tuple[ToolResult, RequestedEffects]:
        nonlocal attempts
        attempts += 1
        call_context = make_call_context(context, spec.name)
        call_arguments = {**spec.to_native_types(arguments), **dict.fromkeys(spec.contexts, call_context)}
        value = _call_function(spec.function, call_arguments)
        if isinstance(value, ToolResult):
            result = ToolResult(bool(value.success), to_text(value.output, spec.name), outcome=value.outcome)
        else:
            result = ToolResult(True, to_text(value, spec.name))
        return result, call_context.requested_effects()

    try:
        result, effects = _run_with_retries(run_once, spec.attempts) if spec.attempts > 1 else run_once()
    except DiskError:
        raise
    except OSError as error:
        if error.filename and str(error.filename).startswith(f"{context.base}/"):
            require_about_one_file(error.filename, error)
        return _to_failure(spec, error, attempts)
    except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - the edge of a tool call
        return _to_failure(spec, error, attempts)
    return FunctionResult(_add_attempt_count(result, attempts), effects)


def _run_with_retries(
    once: Callable[[], tuple[ToolResult, RequestedEffects]], attempts: int
) -> tuple[ToolResult, RequestedEffects]:
    # Imported here: it would take its time at every start of a process.
    from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential, wait_random

    wait = wait_exponential(multiplier=MIN_PAUSE_S, max=MAX_PAUSE_S) + wait_random(0, MIN_PAUSE_S)
    transient, stop = retry_if_exception(is_transient), stop_after_attempt(attempts)
    return Retrying(retry=transient, wait=wait, stop=stop, reraise=True)(once)


def _call_function(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    returned = function(**arguments)
    if not inspect.isawaitable(returned):
        return returned
    import asyncio  # takes its time at every start of a process

    async def await_value() -> Any:
        return await returned

    return asyncio.run(await_value())


_FILE_ERRORS = (FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError)


def is_transient(error: BaseException) -> bool:
    """Return True if a retry may succeed: a connection, server or rate limit failed, not a file."""
    if isinstance(error, (ToolError, *_FILE_ERRORS)):
        return False
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    if isinstance(error, ProviderError):
        return error.is_retryable
    return type(error) is not RuntimeError and to_provider_error(error, "").is_retryable


def _to_failure(spec: FunctionSpec, error: BaseException, attempts: int) -> FunctionResult:
    trace = "" if isinstance(error, ToolError) else format_trace(error, spec.base)
    needs_end = isinstance(error, MemoryError)
    reason, outcome = _describe_error(spec, error)
    return FunctionResult(
        _add_attempt_count(ToolResult(False, reason, outcome=outcome), attempts), RequestedEffects(), trace, needs_end
    )


def _describe_error(spec: FunctionSpec, error: BaseException) -> tuple[str, Outcome]:
    if isinstance(error, RecoverableError):
        return error.message, error.outcome
    if isinstance(error, ToolError):
        return str(error), error.outcome
    if isinstance(error, MemoryError):
        return f"{spec.name} failed: MemoryError: it needed more memory than it may have", "failed"
    return f"{spec.name} failed: {describe_exception(error)}", "failed"


def _add_attempt_count(result: ToolResult, attempts: int) -> ToolResult:
    return ToolResult(result.success, result.output, outcome=result.outcome, attempts=max(attempts, 1))


def format_trace(error: BaseException, base: Path | None) -> str:
    """Return the stack frames of an error as `file:line in name`, without libraries and LeMMing's code."""
    frames = []
    steps = [step for step in traceback.extract_tb(error.__traceback__) if is_custom_file(step.filename)]
    for step in steps[-MAX_FRAMES:]:
        file = Path(step.filename)
        short_file = file.relative_to(base) if base and file.is_relative_to(base) else file
        frames.append(f"{short_file}:{step.lineno} in {step.name}")
    return ", ".join(frames)


def to_text(value: Any, tool: str) -> str:
    """Return a value as text: texts unchanged, None as an empty text, other values as JSON.

    Raises `ToolError`. Pydantic converts dataclasses, models, enumerations, dates, paths and bytes to JSON; other types
    are converted by `str`.
    """
    from pydantic_core import PydanticSerializationError, to_json

    if value is None:
        return ""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    try:
        text = to_json(value, fallback=str, bytes_mode="utf8", inf_nan_mode="strings").decode("utf-8")
    except UnicodeDecodeError:
        text = repr(value)
    except (ValueError, PydanticSerializationError, RecursionError) as error:
        raise ToolError(f"{tool}: what it returned cannot be told: {error}") from error
    inner_text = text[1:-1]
    return inner_text if text[:1] == text[-1:] == '"' and "\\" not in inner_text and len(text) > 1 else text


REPLY_LIMIT_BYTES = 16 << 20
OUTPUT_LIMIT_CHARS = 4 << 20
"""Maximum characters of a result from the worker: more than is saved of it."""


def call_to_json(
    location: FunctionLocation, spec: FunctionSpec, arguments: dict[str, Any], context: ToolContext
) -> dict[str, Any]:
    """Return a call as JSON values.

    Arguments already in the function's types and valid as JSON are sent together with all other details. The
    worker process then need not load the argument validation, which takes as long as the rest of its start.
    """
    try:
        native_arguments = spec.to_native_types(arguments)
        is_sent = _is_json(native_arguments)
    except InvalidArguments:  # its process says so
        native_arguments, is_sent = arguments, False
    memory_prefix = f"agents/{context.agent.name}/memory/"
    memories = {path: raw.decode() for path, raw in context.staged.items() if path.startswith(memory_prefix)}
    return {
        "home": [*location],
        "args": native_arguments if is_sent else arguments,
        "callee": [spec.name, spec.contexts, spec.attempts] if is_sent else None,
        "base": str(context.base),
        "agent": context.agent.as_json,
        "tick": context.tick,
        "began_at": context.began_at,
        "index": context.index,
        "now": context.now,
        "staged": memories,
        "removed": sorted(context.removed),
        "worked": dict(context.successes),
        "used_up": context.used_up,
    }


def _is_json(value: Any) -> bool:
    """Return True if JSON reproduces a value exactly."""
    if type(value) is dict:
        return all(type(key) is str for key in value) and all(map(_is_json, value.values()))
    if type(value) is list:
        return all(map(_is_json, value))
    return type(value) in (str, int, bool, type(None)) or (type(value) is float and math.isfinite(value))


def context_from_json(values: dict[str, Any]) -> ToolContext:
    """Return the context of a call, as visible to the function."""
    return ToolContext(
        agent=fit_value(Agent, values["agent"]),
        org=Organisation(Path(values["base"])),
        settings=OrgSettings(),
        now=values["now"],
        staged={path: text.encode() for path, text in values["staged"].items()},
        removed=frozenset(values["removed"]),
        successes=values["worked"],
        used_up=values["used_up"],
        tick=values["tick"],
        began_at=values["began_at"],
        index=values["index"],
    )


def result_to_json(function_result: FunctionResult) -> dict[str, Any]:
    """Return the result of a call as JSON values."""
    result, effects = function_result.result, function_result.effects
    return {
        "success": result.success,
        "outcome": result.outcome,
        "output": result.output[:OUTPUT_LIMIT_CHARS],
        "attempts": result.attempts,
        "memories": effects.memories,
        "entries": [entry._asdict() for entry in effects.entries],
        "lines": effects.lines,
        "trace": function_result.trace,
        "needs_end": function_result.needs_end,
    }


def result_from_json(values: dict[str, Any]) -> FunctionResult:
    """Return the result of a call from JSON values."""
    result = ToolResult(values["success"], values["output"], outcome=values["outcome"], attempts=values["attempts"])
    entries = [NewEntry(**entry) for entry in values["entries"]]
    lines = [(level, message, fields) for level, message, fields in values["lines"]]
    effects = RequestedEffects(memories=values["memories"], entries=entries, lines=lines)
    return FunctionResult(result, effects, values["trace"], values["needs_end"])
