"""The edge of a tool call: arguments checked, a deadline kept, and whatever goes wrong made a result."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import replace
from typing import Any

from lemming.kernel.base.deadlines import LeftBehind, run_on_thread
from lemming.kernel.base.errors import (
    OUTCOME_CODES,
    DiskError,
    InvalidArguments,
    LemmingError,
    Outcome,
    PermissionDenied,
    ToolError,
)
from lemming.kernel.base.redaction.secrets import holds_mark, redact_content, redact_foreign, redact_json
from lemming.kernel.plugins.errors import words_of
from lemming.kernel.tools import (
    EngineTool,
    Tool,
    ToolClass,
    ToolResult,
    interrupted,
    toolset_of,
    workspace_secrets,
)
from lemming.kernel.tools.context import ToolContext

_STAGED: tuple[ToolClass, ...] = ("read", "write", "administer")
_COARSEST_CLOCK_S = 2.0  # a file's time of change may lie so much before the clock's
_TAKEN_OUT = (
    "not called: a secret was taken out of its arguments, so it would not do what was said; leave it out"
)


def call_tool(
    name: str, arguments: Any, context: ToolContext, stop: threading.Event | None = None
) -> ToolResult:
    """Check and run one call. Whatever goes wrong inside becomes a failed result the agent can read.

    Raised is `LeftBehind`, when `stop` was set while a tool ran on a thread and went on running, and a
    `DiskError` that says nothing about the call.
    """
    try:
        tool = toolset_of(context.settings, context.org).require(name, context.agent, context.settings)
    except PermissionDenied as error:
        return _failed(str(error), "denied")
    except ToolError as error:
        return _failed(str(error), error.outcome)
    if not workspace_secrets.is_left_by(tool):
        return _called(tool, arguments, context, stop)
    began_s = time.time() - _COARSEST_CLOCK_S
    result = _called(tool, arguments, context, stop)
    said = workspace_secrets.without_secrets(context, began_s)
    return replace(result, output=f"{result.output}\n{said}") if said else result


def _only_stages(tool: Tool) -> bool:
    """Return whether all that a call does is written by the engine, so that what it does can be seen."""
    return isinstance(tool, EngineTool) and tool.tool_class in _STAGED


def _called(tool: Tool, arguments: Any, context: ToolContext, stop: threading.Event | None) -> ToolResult:
    try:
        if not isinstance(arguments, dict):
            raise InvalidArguments(f"{tool.name}: args must be an object")
        checked = tool.check(arguments)
        if not _only_stages(tool) and holds_mark(arguments):
            return _failed(f"{tool.name}: {_TAKEN_OUT}", "denied")
        context = replace(context, deadline=context.deadline.within(limit_of(tool, context)), stop=stop)
        if tool.keeps_deadline:
            return _readable(tool, tool.invoke(context, checked), context)
        return _readable(tool, _in_time(tool, checked, context, stop), context)
    except LeftBehind:
        raise
    except DiskError as error:
        # On the organisation's own disk no call can help it; a tool's trouble elsewhere is its result.
        is_ours = tool.stages_files or error.where.startswith(f"{context.base}/")
        if is_ours and not error.concerns_one_file:
            raise  # it says nothing about the call
        return _failed(str(error), context=context)
    except ToolError as error:
        return _failed(str(error), error.outcome, context)
    except LemmingError as error:
        return _failed(str(error), context=context)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the edge of a tool call: becomes a recorded result
        return _failed(f"{tool.name} failed: {words_of(error)}", context=context)


def _failed(why: str, outcome: Outcome = "failed", context: ToolContext | None = None) -> ToolResult:
    """Return the result of a call that came to nothing; `context` where the words may be another's."""
    result = ToolResult(False, redact_foreign(why), outcome=outcome)
    if context is not None and context.look:
        result = context.look(result)
    return replace(result, output=_cut(result.output, Tool.output_limit_bytes))


def limit_of(tool: Tool, context: ToolContext) -> float:
    """Return the longest time of a call of the tool, in seconds: the tightest of the limits in settings.

    A class of somebody's own may say more than the organisation does: it may always have. Tools that ship and
    end in time by themselves have settings of their own.
    """
    own = tool.timeout_s if tool.timeout_s is not None else math.inf
    has_own = (
        tool.keeps_deadline if isinstance(tool, EngineTool) else own < math.inf and not tool.stages_files
    )
    of_org = math.inf if has_own else context.settings.tool_timeout_s
    of_agent = context.agent.turn.tool_timeout_s or math.inf
    return min(own, of_org, of_agent)


def _in_time(
    tool: Tool, arguments: dict[str, Any], context: ToolContext, stop: threading.Event | None
) -> ToolResult:
    """Run a tool on a thread, for as long as it may take."""
    try:
        return run_on_thread(
            lambda: tool.invoke(context, arguments),
            context.deadline,
            name=f"lemming-tool-{tool.name}",
            stop=stop,
        )
    except LeftBehind:
        if stop is not None and stop.is_set():
            raise
    why = f"it took longer than {round(context.deadline.seconds, 2):g} s and was left behind"
    # It goes on on its thread and may have done it: only what may be run again is known to have failed.
    return _failed(f"{tool.name}: {why}", "timed_out") if tool.repeatable else interrupted(why)


def _readable(tool: Tool, result: Any, context: ToolContext) -> ToolResult:
    """Return the result as text that can be recorded and shown, cut where it is too long."""
    if not isinstance(result, ToolResult):
        raise ToolError(f"{tool.name} returned {type(result).__name__}, not a ToolResult")
    if not isinstance(result.output, str):
        raise ToolError(f"{tool.name} returned output of type {type(result.output).__name__}, not text")
    if not isinstance(result.success, bool):
        raise ToolError(
            f"{tool.name} returned {type(result.success).__name__} for success, not true or false"
        )
    if result.outcome not in OUTCOME_CODES:
        raise ToolError(f"{tool.name} returned the outcome {result.outcome!r}: {', '.join(OUTCOME_CODES)}")
    if tool.stages_files and not isinstance(tool, EngineTool):
        return _without_secrets(result)  # it has cut its output itself, and says where the whole is
    seen = _without_secrets(replace(result, output=redact_foreign(result.output)))
    seen = context.look(seen) if context.look else seen
    # Cut last: gates must have seen all of it.
    output = _cut(seen.output, tool.output_limit_bytes)
    if isinstance(tool, EngineTool):
        return replace(seen, output=output)
    asks = seen.entries if seen.outcome == "pending" else ()  # others are for tools that stage them
    return ToolResult(seen.success, output, outcome=seen.outcome, entries=asks, verdicts=seen.verdicts)


def _without_secrets(result: ToolResult) -> ToolResult:
    """Return a result whose files and entries hold no secret."""
    if not (result.effects or result.entries):
        return result
    effects = tuple(
        effect if effect.removes else replace(effect, content=redact_content(effect.content))
        for effect in result.effects
    )
    entries = tuple(
        entry._replace(payload=redact_json(entry.payload), tags=redact_json(entry.tags))
        for entry in result.entries
    )
    return replace(result, effects=effects, entries=entries)


def _cut(text: str, limit_bytes: int) -> str:
    """Return text that UTF-8 can hold, at most so much of it, and a note when that is not all."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit_bytes:
        return raw.decode("utf-8")
    kept = raw[:limit_bytes].decode("utf-8", "ignore")
    return f"{kept}\n[cut: the first {limit_bytes} of {len(raw)} bytes are shown]"
