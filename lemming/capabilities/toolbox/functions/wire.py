"""What goes between the engine and a process that runs functions: lines of JSON."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from lemming.capabilities.toolbox.functions.body import Callee, Done
from lemming.capabilities.toolbox.functions.loading import Home, Sources
from lemming.kernel.agents import Agent
from lemming.kernel.base.contract import NewEntry
from lemming.kernel.base.errors import InvalidArguments
from lemming.kernel.files.fitting import fit
from lemming.kernel.org.config import Org
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tools import ToolResult
from lemming.kernel.tools.context import CallEffects, ToolContext

REPLY_LIMIT_BYTES = 16 << 20
OUTPUT_LIMIT_CHARS = 4 << 20
"""The most of a result that comes back: more than is kept of it."""


def request_of(home: Home, callee: Callee, arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    """Return a call as JSON values.

    Arguments that are JSON values in the function's own types go as these, with all else that is needed of
    it: its process need not load what checks arguments, which takes as long as all the rest of its start.
    """
    given = _given(callee, arguments)
    own = f"agents/{context.agent.name}/memory/"
    memories = {place: raw.decode() for place, raw in context.staged.items() if place.startswith(own)}
    return {
        "home": [*home],
        "args": arguments if given is None else given,
        "callee": None if given is None else [callee.name, callee.contexts, callee.attempts],
        "base": str(context.base),
        "agent": context.agent.plain,
        "tick": context.tick,
        "began_at": context.began_at,
        "index": context.index,
        "now": context.now,
        "staged": memories,
        "removed": sorted(context.removed),
        "worked": dict(context.worked),
        "used_up": context.used_up,
    }


def _given(callee: Callee, arguments: dict[str, Any]) -> dict[str, Any] | None:
    """Return arguments in the function's own types where JSON has them all; else None."""
    try:
        given = callee.in_own_types(arguments)
    except InvalidArguments:  # its process says so
        return None
    return given if _is_json(given) else None


def _is_json(value: Any) -> bool:
    """Return whether a value comes out of JSON as the very value that it is."""
    if type(value) is dict:
        return all(type(key) is str for key in value) and all(map(_is_json, value.values()))
    if type(value) is list:
        return all(map(_is_json, value))
    return type(value) in (str, int, bool, type(None)) or (type(value) is float and math.isfinite(value))


def load_request(base: Path, file: str) -> dict[str, Any]:
    """Return what asks a process to load a file of tools, and no more; the answer is an empty object."""
    return {"load": str(base / file)}


def sources_as_json(sources: Sources) -> dict[str, str]:
    """Return the sources of tools as JSON values, byte by byte."""
    return {file: source.decode("latin-1") for file, source in sources.items()}


def sources_in(plain: dict[str, str]) -> Sources:
    """Return the sources of tools."""
    return {file: text.encode("latin-1") for file, text in plain.items()}


def context_in(plain: dict[str, Any]) -> ToolContext:
    """Return the context of a call, as far as a function is told of it."""
    return ToolContext(
        agent=fit(Agent, plain["agent"]),
        org=Organisation(Path(plain["base"])),
        settings=Org(),
        now=plain["now"],
        staged={place: text.encode() for place, text in plain["staged"].items()},
        removed=frozenset(plain["removed"]),
        worked=plain["worked"],
        used_up=plain["used_up"],
        tick=plain["tick"],
        began_at=plain["began_at"],
        index=plain["index"],
    )


def reply_of(done: Done) -> dict[str, Any]:
    """Return what a call came to as JSON values."""
    result, wanted = done.result, done.wanted
    return {
        "success": result.success,
        "outcome": result.outcome,
        "output": result.output[:OUTPUT_LIMIT_CHARS],
        "attempts": result.attempts,
        "memories": wanted.memories,
        "entries": [entry._asdict() for entry in wanted.entries],
        "lines": wanted.lines,
        "trace": done.trace,
        "needs_end": done.needs_end,
    }


def done_in(plain: dict[str, Any]) -> Done:
    """Return what a call came to."""
    result = ToolResult(
        plain["success"], plain["output"], outcome=plain["outcome"], attempts=plain["attempts"]
    )
    entries = [NewEntry(**entry) for entry in plain["entries"]]
    lines = [(level, said, told) for level, said, told in plain["lines"]]
    wanted = CallEffects(memories=plain["memories"], entries=entries, lines=lines)
    return Done(result, wanted, plain["trace"], plain["needs_end"])
