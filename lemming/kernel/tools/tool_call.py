"""Boundary of a tool call: validate arguments, enforce the deadline, and turn errors into results."""

from __future__ import annotations

import math
import stat
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from lemming.kernel.base import paths
from lemming.kernel.base.blocking_deadline import WorkAbandoned, run_on_thread
from lemming.kernel.base.errors import (
    OUTCOME_CODES,
    DiskError,
    InvalidArguments,
    LemmingError,
    Outcome,
    PermissionDenied,
    ToolError,
)
from lemming.kernel.base.redaction.secrets import has_redaction, redact_content, redact_json, redact_untrusted
from lemming.kernel.files import fs, quota
from lemming.kernel.files.disk_errors import require_about_one_file
from lemming.kernel.plugins.provider_errors import describe_exception
from lemming.kernel.tools import EngineTool, Tool, ToolClass, ToolResult, get_toolset, interrupted_result
from lemming.kernel.tools.tool_context import ToolContext

_STAGED: tuple[ToolClass, ...] = ("read", "write", "administer")
"""Classes of the tools of which the engine writes all changes, so that they can be inspected."""
_COARSEST_CLOCK_S = 2.0  # a file's mtime may lag behind the clock by this much
_REMOVED_TEXT = "not called: a secret was taken out of its arguments, so it would not do what was said; leave it out"


def call_tool(name: str, arguments: Any, context: ToolContext, stop: threading.Event | None = None) -> ToolResult:
    """Validate and run a call. Errors inside the tool become a failed result for the agent.

    Raises `WorkAbandoned` if `stop` was set while a tool on a thread kept running, and `DiskError` for a disk
    failure unrelated to the call.
    """
    try:
        tool = get_toolset(context.settings, context.org).require_allowed(name, context.agent, context.settings)
    except PermissionDenied as error:
        return _failed_result(str(error), "denied")
    except ToolError as error:
        return _failed_result(str(error), error.outcome)
    if not can_leave_files(tool):
        return _invoke_tool(tool, arguments, context, stop)
    began_s = time.time() - _COARSEST_CLOCK_S
    result = _invoke_tool(tool, arguments, context, stop)
    secrets_note = redact_workspace(context, began_s)
    return replace(result, output=f"{result.output}\n{secrets_note}") if secrets_note else result


def _invoke_tool(tool: Tool, arguments: Any, context: ToolContext, stop: threading.Event | None) -> ToolResult:
    result, limit_bytes = _try_tool(tool, arguments, context, stop)
    if limit_bytes is None:
        return result
    # Outside the edge of the tool: an error of a capability that looks at the result is none of the tool.
    checked = context.check_result(result) if context.check_result else result
    # Cut last: gates must have seen all of it.
    return replace(checked, output=_truncate(checked.output, limit_bytes))


def _try_tool(
    tool: Tool, arguments: Any, context: ToolContext, stop: threading.Event | None
) -> tuple[ToolResult, int | None]:
    """Return the result of a call, and the limit of its output in bytes, or None if it is final."""
    try:
        if not isinstance(arguments, dict):
            raise InvalidArguments(f"{tool.name}: args must be an object")
        checked = tool.parse_arguments(arguments)
        is_staged = isinstance(tool, EngineTool) and tool.tool_class in _STAGED
        if not is_staged and has_redaction(arguments):
            return _failed_result(f"{tool.name}: {_REMOVED_TEXT}", "denied"), None
        context = replace(context, deadline=context.deadline.within(_call_timeout(tool, context)), stop=stop)
        runs_here = tool.keeps_deadline
        result = tool.invoke(context, checked) if runs_here else _run_with_deadline(tool, checked, context, stop)
        return _to_recordable(tool, result)
    except WorkAbandoned:
        raise
    except DiskError as error:
        # On the organisation's own disk no call can help it; a tool's trouble elsewhere is its result.
        is_org_disk = tool.stages_files or error.where.startswith(f"{context.base}/")
        if is_org_disk and not error.concerns_one_file:
            raise  # not an error of the call
        return _failed_result(str(error)), Tool.output_limit_bytes
    except ToolError as error:
        return _failed_result(str(error), error.outcome), Tool.output_limit_bytes
    except LemmingError as error:
        return _failed_result(str(error)), Tool.output_limit_bytes
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the edge of a tool call: becomes a recorded result
        return _failed_result(f"{tool.name} failed: {describe_exception(error)}"), Tool.output_limit_bytes


def _failed_result(message: str, outcome: Outcome = "failed") -> ToolResult:
    """Return the result of a failed call."""
    return ToolResult(False, redact_untrusted(message), outcome=outcome)


def _call_timeout(tool: Tool, context: ToolContext) -> float:
    """Return the time limit of a call in seconds: the tightest of the limits in settings.

    A custom tool class may set a longer limit than the organisation. Shipped tools that end in time by
    themselves have settings of their own.
    """
    tool_limit = tool.timeout_s if tool.timeout_s is not None else math.inf
    has_own_limit = (
        tool.keeps_deadline if isinstance(tool, EngineTool) else tool_limit < math.inf and not tool.stages_files
    )
    org_limit = math.inf if has_own_limit else context.settings.tool_timeout_s
    agent_limit = context.agent.turn.tool_timeout_s or math.inf
    return min(tool_limit, org_limit, agent_limit)


def _run_with_deadline(
    tool: Tool, arguments: dict[str, Any], context: ToolContext, stop: threading.Event | None
) -> ToolResult:
    try:
        return run_on_thread(
            lambda: tool.invoke(context, arguments), context.deadline, name=f"lemming-tool-{tool.name}", stop=stop
        )
    except WorkAbandoned:
        if stop is not None and stop.is_set():
            raise
    reason = f"it took longer than {round(context.deadline.seconds, 2):g} s and was left behind"
    # It continues on its thread and may have succeeded: only a repeatable call counts as failed.
    return _failed_result(f"{tool.name}: {reason}", "timed_out") if tool.repeatable else interrupted_result(reason)


def _to_recordable(tool: Tool, result: Any) -> tuple[ToolResult, int | None]:
    """Return the result with text that can be recorded and shown, and the limit as `_try_tool` does."""
    if not isinstance(result, ToolResult):
        raise ToolError(f"{tool.name} returned {type(result).__name__}, not a ToolResult")
    if not isinstance(result.output, str):
        raise ToolError(f"{tool.name} returned output of type {type(result.output).__name__}, not text")
    if not isinstance(result.success, bool):
        raise ToolError(f"{tool.name} returned {type(result.success).__name__} for success, not true or false")
    if result.outcome not in OUTCOME_CODES:
        raise ToolError(f"{tool.name} returned the outcome {result.outcome!r}: {', '.join(OUTCOME_CODES)}")
    if tool.stages_files and not isinstance(tool, EngineTool):
        return _redact_result(result), None  # it has cut its output itself, and says where the whole is
    redacted = _redact_result(replace(result, output=redact_untrusted(result.output)))
    if isinstance(tool, EngineTool):
        return redacted, tool.output_limit_bytes
    requests = redacted.entries if redacted.outcome == "pending" else ()  # others are for tools that stage them
    allowed = ToolResult(redacted.success, redacted.output, outcome=redacted.outcome, entries=requests)
    return replace(allowed, verdicts=redacted.verdicts), tool.output_limit_bytes


def _redact_result(result: ToolResult) -> ToolResult:
    if not (result.effects or result.entries):
        return result
    effects = tuple(
        effect if effect.removes else replace(effect, content=redact_content(effect.content))
        for effect in result.effects
    )
    entries = tuple(
        entry._replace(payload=redact_json(entry.payload), tags=redact_json(entry.tags)) for entry in result.entries
    )
    return replace(result, effects=effects, entries=entries)


def _truncate(text: str, limit_bytes: int) -> str:
    """Return text in valid UTF-8 of at most `limit_bytes`, with a note if truncated."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit_bytes:
        return raw.decode("utf-8")
    head = raw[:limit_bytes].decode("utf-8", "ignore")
    return f"{head}\n[cut: the first {limit_bytes} of {len(raw)} bytes are shown]"


MAX_BYTES = 64 << 20
"""Maximum bytes of a file that is searched."""

_MAX_NAMES = 5


def can_leave_files(tool: Tool) -> bool:
    """Return True if a tool's calls run code that may leave files in the workspace."""
    return tool.tool_class == "execute" or (tool.tool_class == "write" and not isinstance(tool, EngineTool))


def redact_workspace(context: ToolContext, since_s: float = 0.0) -> str:
    """Remove secrets from workspace files changed since `since_s`; return a note with the files, if any."""
    base, folder = context.base, paths.workspace_folder(context.agent.name)
    try:
        entries = [(entry, entry.status) for entry in quota.walk(f"{base}/{folder}")]
    except OSError as error:
        require_about_one_file(f"{base}/{folder}", error)
        return ""
    # `st_ctime`, which no program can set.
    written = [
        entry.path
        for entry, status in entries
        if stat.S_ISREG(status.st_mode) and status.st_ctime >= since_s and status.st_size <= MAX_BYTES
    ]
    changed = [path for path in written if _redact_file(base, f"{folder}/{path}")]
    if not changed:
        return ""
    remainder_text = f" and {len(changed) - _MAX_NAMES} others" if len(changed) > _MAX_NAMES else ""
    return f"[a secret was taken out of {', '.join(sorted(changed)[:_MAX_NAMES])}{remainder_text}]"


def _redact_file(base: Path, file: str) -> bool:
    """Remove secrets from a file; return False if there were none."""
    try:
        raw = fs.read_bytes(base / file, MAX_BYTES)
        cleaned = redact_content(raw)
        if cleaned == raw:
            return False
        fs.write_atomic(base, file, cleaned)
    except OSError:  # it is gone, or cannot be read
        return False
    except DiskError as error:
        if not error.concerns_one_file:
            raise
        return False
    return True
