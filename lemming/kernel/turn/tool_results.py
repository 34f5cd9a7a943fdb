"""Results of tool calls in the form that prompts show. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lemming.kernel.base.errors import OUTCOME_CODES
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.journal.turn_report import ToolUseJson
from lemming.kernel.tools import ToolResult, interrupted_result
from lemming.kernel.tools.listing import load_found_tools

# Results are kept in the ledger until a prompt shows them. Without a limit, a turn of 64 calls would end in
# a prompt that no model takes, and the agent would fail for ever.
RESULTS_CHARS = 128_000
ARGS_CHARS = 2000

OUTBOX_ENTRIES = "outbox_entries"
"""Tool name in the result for an entry's outcome."""
WRITTEN_ENTRY_KEY = "entry"
"""The key, among the arguments of such a result, of the entry that was written once it was approved."""
DEFERRED_KEY = "deferred"
"""The key of a result that is no "no": the call may be asked for again, once others are decided."""
FOUND_KEY = "found"
"""The key, in a result and the message that shows it, of the tools that a search found. No model sees it."""
INTERRUPTED = interrupted_result("the engine stopped while this ran")


def render_result(tool: str, args: Any, result: ToolResult, room: int = RESULTS_CHARS) -> dict[str, Any]:
    """Return a call and the result for a prompt, cut to `room` characters of output."""
    rendered = {
        "tool": tool,
        "args": _shorten_args(args),
        "success": result.success,
        "output": _truncate(result.output, room),
    }
    if result.outcome == "deferred":
        rendered[DEFERRED_KEY] = True
    if result.state and (found_tools := load_found_tools(result.state)):
        rendered[FOUND_KEY] = [*found_tools]
    return {**rendered, "trust": result.trust["is"]} if "is" in result.trust else rendered


def tool_use_json(tool: str, result: ToolResult) -> ToolUseJson:
    """Return the report's entry about a call."""
    tool_use: ToolUseJson = {"tool": tool, "success": result.success, "outcome": result.outcome}
    return {**tool_use, "code": code} if (code := OUTCOME_CODES[result.outcome]) else tool_use


def _truncate(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[:room]}\n[cut: {room} of {len(text)} characters are shown]"


def _shorten_args(args: Any) -> Any:
    """Return arguments, or the beginning of their JSON if too long: the agent knows the rest."""
    text = dump_compact(args).decode()
    return args if len(text) <= ARGS_CHARS else _truncate(text, ARGS_CHARS)


def without_found_tools(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a result for the model, without the schemas of found tools."""
    return {key: result[key] for key in result if key != FOUND_KEY} if FOUND_KEY in result else result
