"""The organisation of the corpus whose calls, entries and memories pass gates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parts import by_hand, call, remembers

from lemming.testing import make_org, resume, say

GATES = [
    {"at": "in", "redact": ["pin [0-9]+"], "then": "rewrite"},
    {"at": "call", "tool": "file_write", "args": {"path": ["workspace/*", "a"]}, "then": "block"},
    {"at": "call", "tool": "file_append", "redact": ["secret"], "then": "rewrite"},
    {"at": "result", "max_length": 60, "then": "rewrite"},
    {"at": "out", "dedupe": True, "then": "block"},
    {"at": "out", "redact": ["marked [0-9]+"], "then": "rewrite"},
    {"at": "out", "when": {"field": "key", "op": "is", "value": "never"}, "then": "block"},
]


def gated(base: Path, org: dict[str, Any]) -> None:
    """Gates at all places: calls, entries and memories refused and rewritten."""
    calls = [
        call("file_write", path="a", content="1"),
        call("file_append", path="log", content="a secret"),
        call("file_write", path="shared/b", content="2"),
        call("memory_write", key="never", value=1),
        call("remind_me", text="marked 12", after="1h"),
    ]
    tools = {"tools": ["file_write", "file_append", "remind_me"], "read_outboxes": ["*"]}
    reply = say("the pin 12 is known", tool_calls=calls, memory_updates=[{"key": "pin", "value": "pin 12"}])
    make_org(
        base,
        resume("ada", permissions=tools, turn={"max_steps": 2}),
        resume("human", model={"key": "human"}),
        resume("bob", gates=[{"at": "out", "redact": ["known"], "then": "rewrite"}]),
        script=[{"agent": "ada", "step": 0, "reply": reply}, {"reply": remembers("as ever, known")}],
        org={**org, "gates": GATES},
    )
    by_hand(base, "human", 0, "0123456789ab", text="a person's pin 7")
