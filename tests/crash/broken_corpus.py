"""The organisations of the corpus in which something is broken, refused or too slow."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any, ClassVar

from parts import call, remembers

from lemming.kernel.files import fs
from lemming.kernel.tools import Tool, ToolRegistry, ToolResult
from lemming.testing import make_org, resume, say


def broken(base: Path, org: dict[str, Any]) -> None:
    """Resumes that are no resumes, a damaged memory, and an agent beside them that is well."""
    make_org(base, resume("ada"), {"name": "odd"}, org=org, script=[{"reply": remembers("well")}])
    fs.write_atomic(base, "agents/torn/resume.json", b'{"name": "to')
    fs.write_atomic(base, "agents/ada/memory/plan.json", b'{"key": "pl')


def failing(base: Path, org: dict[str, Any]) -> None:
    """A backend that refuses, one that is away, a model that never answers as it should."""
    away = {"provider": "scripted", "attempts": 1, "options": {"file": "config/answers.jsonl"}}
    make_org(
        base,
        resume("ada"),
        resume("bob", model={"key": "away"}),
        resume("cyd"),
        resume("dan"),
        org=org,
        models={"away": away},
        script=[
            {"agent": "ada", "tick": 1, "error": "AuthenticationFailed"},
            {"agent": "bob", "error": "Unavailable"},
            {"agent": "cyd", "step": 0, "reply": "not the contract"},
            {"agent": "dan", "reply": "never the contract"},
            {"reply": remembers("at last")},
        ],
    )


def looping(base: Path, org: dict[str, Any]) -> None:
    """Agents whose loops are broken: one that keeps failing, one that goes on asking for what it may not."""
    refused = say("", outbox_entries=[], tool_calls=[call("shell", command=["ls"])])
    make_org(
        base,
        resume("ada"),
        resume("bob"),
        resume("cyd"),
        org={**org, "loops": {"warn_after": 2, "stop_after": 2}},
        script=[
            {"agent": "ada", "reply": "never the contract"},
            {"agent": "bob", "reply": refused},
            {"reply": remembers("at work")},
        ],
    )


def mixed(base: Path, org: dict[str, Any]) -> None:
    """Replies with a part that is wrong for good; a memory written by tool and reply; large integers."""
    entry = {"kind": "message", "payload": {"text": "many", "number": 2**63 - 1}, "tags": []}
    reply = {
        "outbox_entries": [entry, {"kind": "shout", "payload": {}}],
        "tool_calls": [call("memory_write", key="last", value=1), call("file_write", path="a.txt", content="a")],
        "memory_updates": [{"key": "../bad", "value": 1}, {"key": "last", "value": 2**64 + 1}],
        "notes": "",
    }
    make_org(
        base,
        resume("ada", schedule={"wake": "changed"}, permissions={"read_outboxes": [], "tools": ["file_write"]}),
        resume("bob", permissions={"read_outboxes": ["ada"]}),
        org=org,
        script=[{"agent": "ada", "reply": json.dumps(reply)}, {"agent": "bob", "reply": remembers("read", actions=[])}],
    )


class Hangs(Tool):
    """Takes longer than it may, each time, and may be run again."""

    name = "hangs"
    description = "Hangs."
    repeatable = True
    timeout_s = 0.001
    last: ClassVar[threading.Event] = threading.Event()

    def execute(self, agent_name: str, base_path: Path) -> ToolResult:
        """Wait until the next call, so that one thread is left at most."""
        Hangs.last.set()
        mine = Hangs.last = threading.Event()
        mine.wait()
        return ToolResult(True, "late")


ToolRegistry.register(Hangs())


def hindered(base: Path, org: dict[str, Any]) -> None:
    """A tool that takes too long, a full workspace, a backend that answers at the second try, no time."""
    calls = [
        call("file_write", path="first.txt", content="1" * 5000),
        call("hangs"),
        call("file_write", path="second.txt", content="2" * 100_000),
        call("file_write", path="third.txt", content="3" * 3000),
    ]
    make_org(
        base,
        resume("ada", permissions={"tools": ["file_write", "hangs"]}, turn={"max_steps": 2}),
        resume("bob", model={"key": "second"}),
        resume("cyd", turn={"deadline_s": 1e-9}),
        org={**org, "quota": {"max_bytes": 1 << 20}},
        models={"second": {"provider": "second_try"}},
        script=[{"agent": "ada", "step": 0, "reply": say("working", tool_calls=calls)}, {"reply": remembers("worked")}],
    )
    fs.write_atomic(base, "agents/ada/workspace/large.bin", b"0" * 1_000_000)
