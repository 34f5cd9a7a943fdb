"""What goes between the engine and a process that runs functions: lines of JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lemming.agents import Agent
from lemming.base.contract import NewEntry
from lemming.capabilities.toolbox.functions.body import Done
from lemming.capabilities.toolbox.functions.homes import Home
from lemming.capabilities.toolbox.functions.loading import Sources
from lemming.files.fitting import fit
from lemming.org.config import Org
from lemming.org.organisation import Organisation
from lemming.tools import ToolResult
from lemming.tools.context import CallEffects, ToolContext
from lemming.tools.toolset import Toolset

REPLY_LIMIT_BYTES = 16 << 20
OUTPUT_LIMIT_CHARS = 4 << 20
"""The most of a result that comes back: more than is kept of it."""


def request_of(home: Home, arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    """Return a call as JSON values."""
    own = f"agents/{context.agent.name}/memory/"
    memories = {place: raw.decode() for place, raw in context.staged.items() if place.startswith(own)}
    return {
        "home": [*home],
        "args": arguments,
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
        toolset=Toolset({}, {}),
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
