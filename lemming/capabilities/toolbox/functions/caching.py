"""Results that are kept for some ticks: a call of the same tool with the same arguments is then not made.

They are a memory of the agent, `cache.<tool>`, which a person can read, and remove.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any

from lemming.kernel.base.jsontext import compact
from lemming.kernel.base.redaction.secrets import redact_values
from lemming.kernel.memory import memory_effect
from lemming.kernel.tools import ToolResult
from lemming.kernel.tools.context import ToolContext

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
