"""The organisations of the corpus in which requests are answered by plans."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lemming.base.jsontext import pretty
from lemming.files import fs
from lemming.testing import make_org, resume, say


def planned(base: Path, org: dict[str, Any]) -> None:
    """Two runs of a plan: a band, a tool, waits for a file and a tick, a verdict; ended runs are removed."""
    files = {"allow_read": ["./workspace", "./shared"], "allow_write": ["./workspace", "./shared"]}
    may = {"read_outboxes": ["*"], "tools": ["file_write"], "file_access": files}
    quiet = {"wake": "addressed"}
    asked = {"task": "{{start}} {{previous}}"}
    steps = [
        {"name": "note", "tool": "file_write", "args": {"path": "shared/{{start}}.txt", "content": "x"}},
        {"name": "both", "parallel": [
            {"name": "one", "ask": "bob", "task": "{{start}}"},
            {"name": "two", "ask": "cyd", "task": "{{start}}"},
        ]},
        {"name": "there", "wait": {"file": "./shared/done.txt"}},
        {"name": "later", "wait": {"ticks": 2}},
        {"name": "draft", "ask": "bob", **asked, "verify": {"ask": "cyd"}},
    ]  # fmt: skip
    writes = [{"tool": "file_write", "args": {"path": "shared/done.txt", "content": "done"}}]
    make_org(
        base,
        resume("ask", model={"key": "plan"}, permissions=may),
        resume("bob", schedule=quiet, permissions=may),
        resume("cyd", schedule=quiet),
        resume("human", model={"key": "human"}),
        org=org,
        script=[
            {"agent": "bob", "reply": say("yes", kind="response", tool_calls=writes)},
            {"agent": "cyd", "contains": "The answer", "reply": say("pass", kind="response")},
            {"reply": say("no", kind="response")},
        ],
    )
    fs.publish(base, "agents/ask/plan.json", pretty({"steps": steps, "keep_runs": 1}))
    for word in ("ants", "bees"):
        entry = {"id": word, "tick": 0, "agent": "human", "kind": "request", "tags": [], "created_at": ""}
        payload = {"text": word, "target": "ask"}
        fs.publish(base, f"agents/human/outbox/00000000_{word}.json", pretty({**entry, "payload": payload}))
