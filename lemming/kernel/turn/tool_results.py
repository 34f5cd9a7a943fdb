"""Results of tool calls in the form that prompts show, and notices of the engine among them. Pure.

A notice is stored among the results of calls until it is shown in the next prompt, as a message of its own, and so
carries the trust of the turn. No call gave a notice, and the model is not asked again for a notice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from lemming.kernel.base.contract import TurnReply
from lemming.kernel.base.errors import OUTCOME_CODES
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.base.untrusted_quoting import escape_markers
from lemming.kernel.journal.turn_report import ToolUseJson
from lemming.kernel.providers import Message
from lemming.kernel.tools import Tool, ToolResult, interrupted_result
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
WAITS_ALREADY = "WAITS: this very entry waits for approval already; it is written once"
"""The output for an entry that repeats one that waits; its outcome is pending, too."""
FOUND_KEY = "found"
"""The key, in a result and the message that shows it, of the tools that a search found. No model sees it."""
INTERRUPTED = interrupted_result("the engine stopped while this ran")


def render_result(tool: str, args: Any, result: ToolResult, room: int = RESULTS_CHARS) -> dict[str, Any]:
    """Return a call and the result for a prompt, cut to `room` characters of output."""
    args_text = dump_compact(args).decode()
    rendered = {
        "tool": tool,
        "args": args if len(args_text) <= ARGS_CHARS else _truncate(args_text, ARGS_CHARS),
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


def without_found_tools(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a result for the model, without the schemas of found tools."""
    return {key: result[key] for key in result if key != FOUND_KEY} if FOUND_KEY in result else result


T = TypeVar("T", bound=Mapping[str, Any])
NOTICE = "(notice)"
"""Tool name in the result of a notice. No tool has such a name."""
NOTICE_CHARS = 1000


class Notices:
    """Notices of a turn. `texts` are the notices not yet among the results."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._useless_replies = 0  # in a row

    @property
    def should_retry(self) -> bool:
        """True if the model is asked again because of notices: once, after the first useless reply in a row."""
        return self._useless_replies == 1

    def add(self, text: str) -> None:
        """Add a notice."""
        self.texts.append(text)

    def to_results(self, reply: TurnReply) -> list[dict[str, Any]]:
        """Return the notices of an applied reply and the omissions as results."""
        if reply.left_out:
            self.add(f"In your last reply: {'; '.join(reply.left_out)}")
        is_useful = reply.outbox_entries or reply.tool_calls or reply.memory_updates or not reply.left_out
        self._useless_replies = 0 if is_useful else self._useless_replies + 1
        notices, self.texts = self.texts, []
        return [{"tool": NOTICE, "args": {}, "success": False, "output": text[:NOTICE_CHARS]} for text in notices]


def is_notice(result: Mapping[str, Any]) -> bool:
    """Return True if a result is a notice of the engine."""
    return bool(result["tool"] == NOTICE)


def without_notices(results: Iterable[T]) -> list[T]:
    """Return the results of calls without notices."""
    return [result for result in results if not is_notice(result)]


def extract_notices(results: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the texts of the notices among results, each as a line with a trust label."""
    return [
        f"{trust}{escape_markers(result['output'])}"
        for result in results
        if is_notice(result)
        for trust in [f"[trust: {result['trust']}] " if "trust" in result else ""]
    ]


def notices_message(notices: Iterable[str]) -> Message:
    """Return the message with the engine's notices to the model within a turn."""
    return {"role": "user", "content": "\n".join(f"WARNING: {notice}" for notice in notices)}


def is_news(result: Mapping[str, Any], tool: Tool | None) -> bool:
    """Return True if a result justifies a model call. A tool that wrote as told gives no news."""
    if is_notice(result):
        return False
    is_from_person = "call" in result
    return is_from_person or not result["success"] or tool is None or tool.success_is_news
