"""What a call of a function has the engine write: memories, entries, and a long result as a file.

A result may be kept for some ticks, so that the same call is not made again: these are a memory of the agent,
`cache.<tool>`, which a person can read, and remove.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any

from lemming.capabilities.toolbox.functions.body import Done
from lemming.kernel.access.allowed_paths import resolve
from lemming.kernel.access.open import write_effect
from lemming.kernel.access.recorded_effects import require_writable as require_granted_or_memory
from lemming.kernel.base import paths
from lemming.kernel.base.errors import DiskError, LemmingError
from lemming.kernel.base.jsontext import compact
from lemming.kernel.base.redaction.secrets import redact_foreign, redact_values
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.files.quota import FolderSize
from lemming.kernel.memory import memory_effect
from lemming.kernel.org.resume import FileAccess
from lemming.kernel.tools import Tool, ToolResult
from lemming.kernel.tools.context import ToolContext

RESULTS = "tool_results"
WHOLE_BYTES = 1 << 20
"""The most that is kept of a long result."""


def with_effects(tool: Tool, context: ToolContext, done: Done) -> ToolResult:
    """Return a call's result with the files that it wants written, and its output cut where it is long."""
    wanted = done.wanted
    memories = wanted.memories.items()
    effects = [memory_effect(context.agent.name, key, value, context.now) for key, value in memories]
    # before it is cut: half a secret looks like none
    result = replace(done.result, output=redact_foreign(done.result.output))
    result = context.look(result) if context.look else result
    output, kept = shortened(context, result.output, tool.name, tool.output_limit_bytes)
    return replace(result, output=output, effects=(*effects, *kept), entries=tuple(wanted.entries))


def shortened(
    context: ToolContext, text: str, tool: str, limit_bytes: int
) -> tuple[str, tuple[FileEffect, ...]]:
    """Return a text cut where it is too long for a prompt, and the file that keeps it whole then.

    Where the workspace has no room for the file, the text is only cut.
    """
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit_bytes:
        return raw.decode(), ()
    shown = raw[:limit_bytes].decode("utf-8", "ignore")
    note = f"[cut: the first {limit_bytes} of {len(raw)} bytes are shown"
    whole = raw[:WHOLE_BYTES].decode("utf-8", "ignore").encode()
    path = f"workspace/{RESULTS}/{context.tick:08d}-{context.index}-{tool}.txt"
    try:
        place = resolve(_at_home(context).agent, context.base, path, "write", caller=tool)
        quota = context.settings.quota
        limits = FolderSize(quota.max_bytes, quota.max_files)
        effect = write_effect(place, whole, context.staged, limits=limits, limit_bytes=WHOLE_BYTES)
    except LemmingError as error:
        if isinstance(error, DiskError) and not error.concerns_one_file:
            raise  # it says nothing about the file
        return f"{shown}\n{note}; the rest is lost: {error}]", ()
    what = "the whole is" if len(raw) <= WHOLE_BYTES else f"the first {WHOLE_BYTES} are"
    return f"{shown}\n{note}; {what} in {path}]", (effect,)


def require_writable(context: ToolContext, effect: FileEffect, *, caller: str) -> None:
    """Raise unless an effect that a journal tells of is one that a call could give now."""
    kept = f"{paths.workspace_folder(context.agent.name)}/{RESULTS}/"
    if not effect.root and effect.path.startswith(kept):
        place = resolve(
            _at_home(context).agent, context.base, f"{context.base}/{effect.path}", "write", caller=caller
        )
        write_effect(place, effect.content, {}, limits=FolderSize(1 << 62, 1 << 62), limit_bytes=WHOLE_BYTES)
        return
    if effect.root or not effect.path.startswith(f"{paths.memory_folder(context.agent.name)}/"):
        resolve(
            _nowhere(context).agent, context.base, f"{context.base}/{effect.path}", "write", caller=caller
        )
    require_granted_or_memory(context.agent, context.base, context.settings, effect, caller=caller)


def _at_home(context: ToolContext) -> ToolContext:
    """Return the context with an agent that may write into its workspace, and nowhere else."""
    return _with_access(context, FileAccess(allow_read=[], allow_write=["./workspace"]))


def _nowhere(context: ToolContext) -> ToolContext:
    return _with_access(context, FileAccess(allow_read=[], allow_write=[]))


def _with_access(context: ToolContext, access: FileAccess) -> ToolContext:
    permissions = replace(context.agent.permissions, file_access=access)
    return replace(context, agent=replace(context.agent, permissions=permissions))


# --- results that are kept for some ticks ---------------------------------------------------------

MOST_RESULTS, MOST_CHARS = 50, 100_000


def key_of(tool: str) -> str:
    """Return the memory that keeps a tool's results."""
    return f"cache.{tool}"


def kept_result(context: ToolContext, arguments: Mapping[str, Any], ticks: int) -> ToolResult | None:
    """Return the result of an earlier call with these arguments, if it is not older than so many ticks."""
    found = _cached(context, ticks).get(_digest(arguments))
    return ToolResult(True, found["output"]) if found else None


def keep(context: ToolContext, arguments: Mapping[str, Any], result: ToolResult, ticks: int) -> ToolResult:
    """Return a result with the effect that keeps it; what is too old goes, and the oldest of too many."""
    new = {"tick": context.tick, "args": dict(arguments), "output": redact_values(result.output)}
    kept = {**_cached(context, ticks), _digest(arguments): new}
    newest = sorted(kept.items(), key=lambda item: item[1]["tick"], reverse=True)[:MOST_RESULTS]
    while len(newest) > 1 and sum(len(compact(item)) for item in newest) > MOST_CHARS:
        newest.pop()
    effect = memory_effect(context.agent.name, key_of(context.tool), dict(sorted(newest)), context.now)
    return replace(result, effects=(*result.effects, effect))


def _cached(context: ToolContext, ticks: int) -> dict[str, dict[str, Any]]:
    """Return what is kept and not too old; what a person wrote there that is none of ours is passed over."""
    found = context.memory.get(key_of(context.tool))
    return {
        digest: each
        for digest, each in (found.items() if isinstance(found, dict) else ())
        if isinstance(each, dict)
        and isinstance(each.get("output"), str)
        and isinstance(each.get("tick"), int)
        and 0 <= context.tick - each["tick"] <= ticks
    }


def _digest(arguments: Mapping[str, Any]) -> str:
    return sha256(compact(dict(sorted(arguments.items())))).hexdigest()[:16]
