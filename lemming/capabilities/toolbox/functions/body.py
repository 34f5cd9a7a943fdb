"""A call of a function, in whatever process it runs: its arguments checked, tried again, its result told."""

from __future__ import annotations

import copy
import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lemming.kernel.base.errors import DiskError, Outcome, ProviderError, RecoverableError, ToolError
from lemming.kernel.files.refusals import require_about_one_file
from lemming.kernel.plugins.errors import is_own, provider_error, words_of
from lemming.kernel.tools import ToolResult
from lemming.kernel.tools.context import CallEffects, ToolContext

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
FRAMES = 8


@dataclass
class Done:
    """What a call came to: its result, what it asked for, and the steps of what went wrong, for the log."""

    result: ToolResult
    wanted: CallEffects
    trace: str = ""
    needs_end: bool = False  # the process is not to be used again


def copied(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments that are a function's to change: tried again, it is given what it was given first."""
    return copy.deepcopy(dict(arguments))


@dataclass(frozen=True)
class Callee:
    """A function as its calls need it. `contexts`: its parameters that get the `ToolContext`.

    `in_own_types` makes arguments the function's own types; the default, where those are what JSON has.
    """

    function: Callable[..., Any]
    name: str
    contexts: Sequence[str]
    attempts: int
    base: Path | None
    in_own_types: Callable[[Mapping[str, Any]], dict[str, Any]] = copied


def of_call(context: ToolContext, tool: str) -> ToolContext:
    """Return a context of a call of a tool that has asked for nothing yet."""
    return replace(context, tool=tool, wanted=CallEffects())


def run(tool: Callee, arguments: Mapping[str, Any], context: ToolContext) -> Done:
    """Run a call. Whatever goes wrong in it becomes its result; what it asked for is then dropped.

    Raises `DiskError` when the organisation's disk fails under it, which says nothing about the call.
    """
    tried = 0

    def once() -> tuple[ToolResult, CallEffects]:
        nonlocal tried
        tried += 1
        fresh = of_call(context, tool.name)
        given = {**tool.in_own_types(arguments), **dict.fromkeys(tool.contexts, fresh)}
        result = as_result(_call(tool.function, given), tool.name)
        return result, fresh.all_wanted()

    try:
        result, wanted = _tried_again(once, tool.attempts) if tool.attempts > 1 else once()
    except DiskError:
        raise
    except OSError as error:
        if error.filename and str(error.filename).startswith(f"{context.base}/"):
            require_about_one_file(error.filename, error)
        return _failed(tool, error, tried)
    except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - the edge of a tool call
        return _failed(tool, error, tried)
    return Done(_with_attempts(result, tried), wanted)


def _tried_again(
    once: Callable[[], tuple[ToolResult, CallEffects]], attempts: int
) -> tuple[ToolResult, CallEffects]:
    # Imported here: it would take its time at every start of a process.
    from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential, wait_random

    wait = wait_exponential(multiplier=FIRST_PAUSE_S, max=LONGEST_PAUSE_S) + wait_random(0, FIRST_PAUSE_S)
    transient, most = retry_if_exception(is_transient), stop_after_attempt(attempts)
    return Retrying(retry=transient, wait=wait, stop=most, reraise=True)(once)


def _call(function: Callable[..., Any], given: dict[str, Any]) -> Any:
    returned = function(**given)
    if not inspect.isawaitable(returned):
        return returned
    import asyncio  # takes its time at every start of a process

    return asyncio.run(_awaited(returned))


async def _awaited(work: Any) -> Any:
    return await work


_OF_FILES = (FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError)


def is_transient(error: BaseException) -> bool:
    """Return whether an error may be gone the next time: a connection, a server, too many requests.

    A file that is missing, denied or of another kind is so the next time too.
    """
    if isinstance(error, (ToolError, *_OF_FILES)):
        return False
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    if isinstance(error, ProviderError):
        return error.is_retryable
    return type(error) is not RuntimeError and provider_error(error, "").is_retryable


def _failed(tool: Callee, error: BaseException, tried: int) -> Done:
    trace = "" if isinstance(error, ToolError) else trace_of(error, tool.base)
    needs_end = isinstance(error, MemoryError)
    why, outcome = _words(tool, error)
    return Done(
        _with_attempts(ToolResult(False, why, outcome=outcome), tried), CallEffects(), trace, needs_end
    )


def _words(tool: Callee, error: BaseException) -> tuple[str, Outcome]:
    if isinstance(error, RecoverableError):
        return error.message, error.outcome
    if isinstance(error, ToolError):
        return str(error), error.outcome
    if isinstance(error, MemoryError):
        return f"{tool.name} failed: MemoryError: it needed more memory than it may have", "failed"
    return f"{tool.name} failed: {words_of(error)}", "failed"


def _with_attempts(result: ToolResult, tried: int) -> ToolResult:
    return ToolResult(result.success, result.output, outcome=result.outcome, attempts=max(tried, 1))


def trace_of(error: BaseException, base: Path | None) -> str:
    """Return the steps of an error in code that is neither a library's nor LeMMing's: `file:line in name`."""
    steps = [step for step in traceback.extract_tb(error.__traceback__) if is_own(step.filename)]
    shown = [f"{_short(step.filename, base)}:{step.lineno} in {step.name}" for step in steps[-FRAMES:]]
    return ", ".join(shown)


def _short(file: str, base: Path | None) -> str:
    return str(Path(file).relative_to(base)) if base and Path(file).is_relative_to(base) else file


def text_of(value: Any, tool: str) -> str:
    """Return any value as text: a text as it is, nothing for None, all else as JSON. Raises `ToolError`.

    Dataclasses, models, enumerations, dates, paths and bytes become what pydantic makes of them in JSON;
    what it does not know, its `str`.
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
    plain = text[1:-1]
    return plain if text[:1] == text[-1:] == '"' and "\\" not in plain and len(text) > 1 else text


def as_result(value: Any, tool: str) -> ToolResult:
    """Return what a function returned as a result; a `ToolResult` is one already."""
    if isinstance(value, ToolResult):
        return ToolResult(bool(value.success), text_of(value.output, tool), outcome=value.outcome)
    return ToolResult(True, text_of(value, tool))
