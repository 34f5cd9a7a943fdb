"""Results of tool calls, as prompts show them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lemming.kernel.base.errors import OUTCOME_CODES
from lemming.kernel.base.jsontext import compact
from lemming.kernel.journal.report import ToolUsed
from lemming.kernel.tools import ToolResult, interrupted
from lemming.kernel.tools.listing import read_found_tools

# What tools gave is shown in a prompt and kept in the ledger until then: a turn that may call 64 tools
# would else end in a prompt that no model takes, and so in an agent that fails for ever.
RESULTS_CHARS = 128_000
ARGS_CHARS = 2000

OUTBOX_ENTRIES = "outbox_entries"
"""What a result is of that says what became of an entry."""
WRITTEN = "entry"
"""The key, among the arguments of such a result, of the entry that was written once it was approved."""
DEFERRED = "deferred"
"""The key of a result that is no "no": the call may be asked for again, once others are decided."""
FOUND = "found"
"""The key, in a result and the message that shows it, of the tools that a search found. No model sees it."""
INTERRUPTED = interrupted("the engine stopped while this ran")


def as_shown(tool: str, args: Any, result: ToolResult, room: int = RESULTS_CHARS) -> dict[str, Any]:
    """Return a call and its result as a prompt shows them, cut to `room` characters of output."""
    shown = {
        "tool": tool,
        "args": _short(args),
        "success": result.success,
        "output": _cut(result.output, room),
    }
    if result.outcome == "deferred":
        shown[DEFERRED] = True
    if result.kept and (found := read_found_tools(result.kept)):
        shown[FOUND] = [*found]
    return {**shown, "trust": result.trust["is"]} if "is" in result.trust else shown


def tool_used(tool: str, result: ToolResult) -> ToolUsed:
    """Return what a report says of a call."""
    used: ToolUsed = {"tool": tool, "success": result.success, "outcome": result.outcome}
    return {**used, "code": code} if (code := OUTCOME_CODES[result.outcome]) else used


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[:room]}\n[cut: {room} of {len(text)} characters are shown]"


def _short(args: Any) -> Any:
    """Return arguments as they are, or the beginning of their JSON: the agent knows what it asked for."""
    text = compact(args).decode()
    return args if len(text) <= ARGS_CHARS else _cut(text, ARGS_CHARS)


def without_found(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a result as a model is shown it whole: without the schemas of tools that it has found."""
    return {key: result[key] for key in result if key != FOUND} if FOUND in result else result
