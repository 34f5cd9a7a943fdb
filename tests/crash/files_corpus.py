"""The organisations of the corpus whose agents change files in other ways than by writing them whole."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

from parts import call, remembers

from lemming.kernel.files import fs
from lemming.testing import make_org, resume, say

BOTH = ["./workspace", "./shared"]
BY_HAND = b'{"key": "by-hand", "value": 1}'


def filing(base: Path, org: dict[str, Any]) -> None:
    """Two agents that edit, add to, move and search what both may change."""
    first = [
        call("file_append", path="shared/log.txt", content="ada was here"),
        call("file_edit", path="shared/log.txt", old="begins", new="began"),
        call("file_search", text="was", path="shared"),
        call("file_move", path="shared/log.txt", to="shared/old/log.txt"),
        call("file_move", path="shared/old/log.txt", to="shared/log.txt", over=True),
        call("file_move", path="draft.txt", to="shared/final.txt"),
    ]
    second = [
        call("file_append", path="shared/log.txt", content="again"),
        call("search", query="log"),
        call("file_move", path="shared/final.txt", to="shared/other.txt"),
    ]
    tools = ["file_append", "file_edit", "file_move", "file_search", "search"]
    may = {"read_outboxes": [], "tools": tools, "file_access": {"allow_read": BOTH, "allow_write": BOTH}}
    make_org(
        base,
        resume("ada", permissions=may, turn={"max_steps": 2}),
        resume("bob", permissions=may),
        org=org,
        script=[
            {"agent": "ada", "step": 0, "reply": say("working", tool_calls=first)},
            {"agent": "ada", "step": 1, "reply": remembers("worked", tool_calls=second)},
            {"agent": "bob", "reply": say("notes", tool_calls=second)},
        ],
    )
    fs.write_atomic(base, "agents/ada/workspace/draft.txt", b"a draft\n")
    fs.write_atomic(base, "shared/log.txt", b"the log begins\n")


def keeping(base: Path, org: dict[str, Any]) -> None:
    """Two agents that begin one value of the store, read it, write over what the other wrote, attach it."""
    known, wrong = sha256(BY_HAND).hexdigest()[:16], "0" * 16
    calls = [
        call("store_write", key="plan", value={"step": 1}, expect=None),
        call("store_read", key="plan"),
        call("store_write", key="plan", value={"step": 2}, expect=wrong),
        call("store_write", key="by-hand", value=2, expect=known),
    ]
    files = [{"path": "shared/store/plan.json"}, {"path": "shared/none"}]
    carries = {"kind": "report", "payload": {"text": "kept", "attachments": files}, "tags": []}
    tools = ["store_read", "store_write", "attach"]
    may = {"read_outboxes": [], "tools": tools, "file_access": {"allow_read": BOTH, "allow_write": BOTH}}
    make_org(
        base,
        resume("ada", permissions=may),
        resume("bob", permissions=may),
        org=org,
        script=[{"reply": say("keeping", tool_calls=calls, outbox_entries=[carries])}],
    )
    fs.write_atomic(base, "shared/store/by-hand.json", BY_HAND)
