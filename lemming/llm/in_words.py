"""What a backend that calls tools itself is asked, in words: for one that does not. Pure.

A fallback, or a model that a strategy asks, may be such a one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lemming.base.jsontext import to_line
from lemming.providers import Message, Request

_HOW = (
    "# Tools\nTo call tools, reply with one JSON object that has a list of them, and nothing else: "
    '{"tool_calls": [{"tool": "name", "args": {}}]}. You are then shown their results.'
)


def in_words(request: Request) -> Request:
    """Return a request without tool calls of a backend's own in its messages; the same when it has none."""
    if max(map(len, request.messages), default=0) == 2:
        return request
    # Its schema has no place for calls.
    return request._replace(messages=[_in_words(message) for message in request.messages], schema=None)


def _in_words(message: Message) -> Message:
    content = message["content"]
    if message["role"] == "tool":
        result = {"tool": message["tool"], "success": message["success"], "output": content}
        return {"role": "user", "content": f"Result of a tool call: {to_line(result)}"}
    if calls := message.get("calls"):
        made = [{"tool": call["tool"], "args": call["args"]} for call in calls]
        content = f"{content}\n{to_line({'tool_calls': made})}".strip()
    if tools := message.get("tools"):
        content = "\n".join([content, "", _HOW, *map(_line, tools)])
    return {"role": message["role"], "content": content}


def _line(tool: Mapping[str, Any]) -> str:
    """Return what is told of a tool, by its own name: a backend may know it by another."""
    name = tool.get("tool", tool["name"])
    return f"- {name}: {tool['description']} Arguments: {to_line(tool['parameters'])}"
