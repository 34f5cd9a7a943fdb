"""Serialize calls and results between the engine and a worker process: lines of JSON."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from lemming.capabilities.toolbox.functions.function_call import FunctionResult, FunctionSpec
from lemming.capabilities.toolbox.functions.function_import import FunctionLocation
from lemming.ext import NewEntry
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import InvalidArguments
from lemming.kernel.files.fast_decoder import fit_value
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tools import ToolResult
from lemming.kernel.tools.tool_context import RequestedEffects, ToolContext

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
