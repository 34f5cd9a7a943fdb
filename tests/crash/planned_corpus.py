"""The organisations of the corpus in which requests are answered by plans."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parts import by_hand

from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
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
    fs.write_atomic(base, "agents/ask/plan.json", dump_pretty({"steps": steps, "keep_runs": 1}))
    for word in ("ants", "bees"):
        entry = {"id": word, "tick": 0, "agent": "human", "kind": "request", "tags": [], "created_at": ""}
        payload = {"text": word, "target": "ask"}
        fs.write_atomic(base, f"agents/human/outbox/00000000_{word}.json", dump_pretty({**entry, "payload": payload}))


def listed(base: Path, org: dict[str, Any]) -> None:
    """A plan that gives another one a list, which calls a tool and asks somebody for each, two at once."""
    files = {"allow_read": ["./workspace"], "allow_write": ["./workspace"]}
    may = {"read_outboxes": ["*"], "tools": ["file_write"], "file_access": files}
    words = {"type": "array", "items": {"type": "string"}}
    write = {"tool": "file_write", "args": {"path": "{{item}}.txt", "content": "of {{number}}"}, "at_once": 2}
    steps = [
        {"name": "note", "each": "start.words", **write},
        {"name": "look", "each": "start.words", "ask": "bob", "task": "{{item}}", "at_once": 2,
         "on_item_failure": "keep"},
    ]  # fmt: skip
    none = {"kind": "response", "payload": {"text": "no bees", "status": "failed"}, "tags": []}
    first = {"name": "all", "plan": "press", "args": {"words": "{{start.words}}"}}
    make_org(
        base,
        resume("desk", model={"key": "plan"}, permissions=may),
        resume("press", model={"key": "plan"}, permissions=may),
        resume("bob", schedule={"wake": "addressed"}, turn={"take": "one"}),
        resume("human", model={"key": "human"}),
        org=org,
        script=[{"contains": "bees", "reply": say("", outbox_entries=[none])}, {"reply": say("seen", kind="response")}],
    )
    fs.write_atomic(base, "agents/desk/plan.json", dump_pretty({"steps": [first]}))
    wanted = {"type": "object", "properties": {"words": words}, "required": ["words"]}
    fs.write_atomic(base, "agents/press/plan.json", dump_pretty({"steps": steps, "input": wanted}))
    by_hand(base, "human", 0, "0123456789ab", text="look", words=["ants", "bees", "cows"], target="desk")
