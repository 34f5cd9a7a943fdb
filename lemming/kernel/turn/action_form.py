"""Reply form "tools" of version 0.2.0, for reading old records: one action per step, as trained in Qwen 2.5.

An action is a JSON object with `name` and `arguments`. Turns of later versions have a recorded reply form
(`lemming.kernel.turn.forms`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from lemming.kernel.base.jsontext import JsonProblem, dump_compact, parse

SEND, DONE = "send_message", "done"

_FENCED = re.compile(r"(?:<tool_call>|```(?:json)?)(.*?)(?:</tool_call>|```|\Z)", re.DOTALL)


def to_reply_text(text: str, kinds: Sequence[str]) -> str:
    """Return an action as a reply of four keys. Any other text is unchanged.

    >>> to_reply_text('{"name": "file_read", "arguments": {"path": "x"}}', ["message"])
    '{"tool_calls":[{"tool":"file_read","args":{"path":"x"}}]}'
    >>> to_reply_text('<tool_call> {"name": "send_message", "arguments": {"text": "hi"}}', ["report"])
    '{"outbox_entries":[{"kind":"report","payload":{"text":"hi"}}]}'
    """
    action = _find_action(text)
    if action is None:
        return text
    name, arguments = action
    if name == DONE:
        return dump_compact({"outbox_entries": []}).decode()
    if name == SEND:
        kind = "message" if "message" in kinds else kinds[0]
        return dump_compact({"outbox_entries": [{"kind": kind, "payload": arguments}]}).decode()
    return dump_compact({"tool_calls": [{"tool": name, "args": arguments}]}).decode()


def _find_action(text: str) -> tuple[str, Any] | None:
    """Return the first action in a text (bare, fenced or in tags), or None."""
    match = _FENCED.search(text)
    for part in (text, match[1] if match else ""):
        try:
            raw = parse(part)
        except JsonProblem:
            continue
        if isinstance(raw, dict) and isinstance(raw.get("name"), str):
            arguments = raw.get("arguments", raw.get("parameters", {}))
            return raw["name"], {} if arguments is None else arguments
    return None
