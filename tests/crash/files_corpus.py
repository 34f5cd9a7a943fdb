"""The organisations of the corpus whose agents change files in other ways than by writing them whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parts import call, remembers

from lemming.files import fs
from lemming.testing import make_org, resume, say

BOTH = ["./workspace", "./shared"]


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
    fs.publish(base, "agents/ada/workspace/draft.txt", b"a draft\n")
    fs.publish(base, "shared/log.txt", b"the log begins\n")
