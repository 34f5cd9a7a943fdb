"""The organisation of the corpus whose native calls wait, so that conversations go on over several turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parts import by_hand, call, remembers

from lemming.kernel.messages import entry_id
from lemming.testing import SCRIPT_FILE, make_org, resume, say


def waited(base: Path, org: dict[str, Any]) -> None:
    """Calls that wait for a person, who says yes, no and otherwise, and for another agent."""
    may = {"read_outboxes": ["*"], "tools": ["file_write", "file_read"]}
    quiet = {"schedule": {"wake": "addressed"}, "turn": {"take": "one"}}
    first = [
        call("file_write", path="a.txt", content="a\n"),
        call("file_write", path="b.txt", content="b\n"),
        call("file_read", path="none.txt"),
        call("ask_bob", message="how many?"),
    ]
    make_org(
        base,
        resume("ada", model={"key": "native"}, permissions=may, team={"ask": ["bob"]}, **quiet),
        resume("bob", permissions={"read_outboxes": ["*"]}, **quiet),
        resume("human", model={"key": "human"}, permissions={"read_outboxes": ["*"]}),
        org={**org, "gates": [{"at": "call", "then": "ask", "tool": "file_write"}]},
        models={
            "native": {"provider": "scripted", "options": {"file": SCRIPT_FILE}, "tools": "native"},
            "human": {"provider": "human"},
        },
        script=[
            {"agent": "bob", "reply": say("seven", kind="response")},
            {"agent": "ada", "contains": "how now?", "calls": first, "thinking": "first the notes"},
            {"agent": "ada", "contains": "seven", "calls": [call("file_write", path="c.txt", content="c\n")]},
            {"agent": "ada", "reply": remembers("done", kind="response")},
        ],
    )
    by_hand(base, "human", 0, "first", text="how now?", target="ada", conversation="")
    yes, no, otherwise = entry_id(1, "ada", 0), entry_id(1, "ada", 1), entry_id(2, "ada", 0)
    by_hand(base, "human", 2, "a", kind="response", reply_to=yes, decision="approve")
    by_hand(base, "human", 2, "b", kind="response", reply_to=no, decision="deny", reason="not now")
    edited = {"path": "c.txt", "content": "edited\n"}
    by_hand(base, "human", 3, "c", kind="response", reply_to=otherwise, decision="approve", args=edited, binds={})
    again = entry_id(3, "ada", 0)  # what it is bound to is another file's contents now
    by_hand(base, "human", 4, "d", kind="response", reply_to=again, decision="approve")
