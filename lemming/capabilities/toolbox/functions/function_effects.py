"""Attach the effects of a function call: memories, entries, and the full text of a long result as a file.

Results may be cached for some ticks, to save repeated calls. The cache is a memory of the agent,
`cache.<tool>`, which a person can read and delete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any

from lemming.capabilities.toolbox.functions.function_call import FunctionResult
from lemming.ext import LemmingError
from lemming.kernel.access.agent_files import write_effect
from lemming.kernel.access.allowed_paths import resolve_path
from lemming.kernel.access.recorded_effects import require_writable as require_granted_or_memory
from lemming.kernel.base import paths
from lemming.kernel.base.errors import DiskError
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.base.redaction.secrets import redact_untrusted, redact_values
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.files.quota import FolderSize
from lemming.kernel.memory import make_memory_effect
from lemming.kernel.org.resume import FileAccess
from lemming.kernel.tools import Tool, ToolResult
from lemming.kernel.tools.tool_context import ToolContext

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
        allowed_path = resolve_path(_with_workspace_access(context).agent, context.base, path, "write", caller=tool)
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
    results_folder = f"{paths.workspace_folder(context.agent.name)}/{RESULTS_FOLDER}/"
    if not effect.root and effect.path.startswith(results_folder):
        allowed_path = resolve_path(
            _with_workspace_access(context).agent, context.base, f"{context.base}/{effect.path}", "write", caller=caller
        )
        write_effect(
            allowed_path, effect.content, {}, limits=FolderSize(1 << 62, 1 << 62), limit_bytes=SAVED_LIMIT_BYTES
        )
        return
    if effect.root or not effect.path.startswith(f"{paths.memory_folder(context.agent.name)}/"):
        resolve_path(
            _without_file_access(context).agent, context.base, f"{context.base}/{effect.path}", "write", caller=caller
        )
    require_granted_or_memory(context.agent, context.base, context.settings, effect, caller=caller)


def _with_workspace_access(context: ToolContext) -> ToolContext:
    """Return the context of an agent with write access to its workspace only."""
    return _with_access(context, FileAccess(allow_read=[], allow_write=["./workspace"]))


def _without_file_access(context: ToolContext) -> ToolContext:
    return _with_access(context, FileAccess(allow_read=[], allow_write=[]))


def _with_access(context: ToolContext, access: FileAccess) -> ToolContext:
    permissions = replace(context.agent.permissions, file_access=access)
    return replace(context, agent=replace(context.agent, permissions=permissions))


# --- results that are kept for some ticks ---------------------------------------------------------

MAX_CACHED_RESULTS, MAX_CACHED_CHARS = 50, 100_000


def cache_memory_key(tool: str) -> str:
    """Return the key of the memory with a tool's cached results."""
    return f"cache.{tool}"


def get_cached_result(context: ToolContext, arguments: Mapping[str, Any], ticks: int) -> ToolResult | None:
    """Return the cached result of an earlier call with the same arguments, at most `ticks` ticks old, or None."""
    cached = _load_cache(context, ticks).get(_arguments_digest(arguments))
    return ToolResult(True, cached["output"]) if cached else None


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
