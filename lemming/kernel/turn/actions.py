"""The form "tools" of 0.2.0, in which its records are read: one action a step, as Qwen 2.5 was taught.

An action is `{"name": ..., "arguments": {...}}`. Turns of later versions have a form of their own on record
(`lemming.kernel.turn.forms`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lemming.kernel.base.jsontext import JsonProblem, compact, parse, to_line
from lemming.kernel.base.quoting import quoted
from lemming.kernel.providers import Message

SEND, DONE = "send_message", "done"

_END = re.compile(r"<(?=\s*/?\s*tool_(?:response|call))", re.IGNORECASE)
_FENCED = re.compile(r"(?:<tool_call>|```(?:json)?)(.*?)(?:</tool_call>|```|\Z)", re.DOTALL)


def responses(results: Iterable[Mapping[str, Any]]) -> Message:
    """Return the message that shows what the last action came to, within the same turn."""
    # A result must neither end its block nor begin a call of its own.
    lines = [_END.sub("\\\\u003c", quoted(to_line(_response(one)))) for one in results]
    text = "\n".join(f"<tool_response>\n{line}\n</tool_response>" for line in lines)
    return {"role": "user", "content": text}


def _response(result: Mapping[str, Any]) -> dict[str, Any]:
    trust = {"trust": result["trust"]} if "trust" in result else {}
    return {"name": result["tool"], **trust, "content": result["output"]}


def as_reply(text: str, kinds: Sequence[str]) -> str:
    """Return an action as a reply of four keys; any other text as it is.

    >>> as_reply('{"name": "file_read", "arguments": {"path": "x"}}', ["message"])
    '{"tool_calls":[{"tool":"file_read","args":{"path":"x"}}]}'
    >>> as_reply('<tool_call> {"name": "send_message", "arguments": {"text": "hi"}}', ["report"])
    '{"outbox_entries":[{"kind":"report","payload":{"text":"hi"}}]}'
    """
    action = _action_in(text)
    if action is None:
        return text
    name, arguments = action
    if name == DONE:
        return compact({"outbox_entries": []}).decode()
    if name == SEND:
        kind = "message" if "message" in kinds else kinds[0]
        return compact({"outbox_entries": [{"kind": kind, "payload": arguments}]}).decode()
    return compact({"tool_calls": [{"tool": name, "args": arguments}]}).decode()


def _action_in(text: str) -> tuple[str, Any] | None:
    """Return the first action in a text: bare, fenced or in tags; None when there is none."""
    found = _FENCED.search(text)
    for part in (text, found[1] if found else ""):
        try:
            plain = parse(part)
        except JsonProblem:
            continue
        if isinstance(plain, dict) and isinstance(plain.get("name"), str):
            arguments = plain.get("arguments", plain.get("parameters", {}))
            return plain["name"], {} if arguments is None else arguments
    return None
