"""The organisation of the corpus whose backend calls tools itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parts import call, remembers

from lemming.testing import SCRIPT_FILE, make_org, resume


def native(base: Path, org: dict[str, Any]) -> None:
    """Calls in one answer and over two, wrong ones among them, and results that wait for the next turn."""
    many = [
        call("file_write", path="notes/today.txt", content="first\n"),
        call("memory_write", key="plan", value=["a", "b"]),
        call("file_raed", path="notes/today.txt"),
        {"tool": "file_read", "args": '{"path": "cut off'},
    ]
    may = {"read_outboxes": ["*"], "tools": ["file_write", "file_read"]}
    entry = {"provider": "scripted", "options": {"file": SCRIPT_FILE}, "tools": "native"}
    make_org(
        base,
        resume("ada", model={"key": "native"}, permissions=may, turn={"max_steps": 3}),
        resume("bob", model={"key": "native"}, permissions=may),
        org=org,
        models={"native": entry},
        script=[
            {"agent": "ada", "step": 0, "calls": many, "thinking": "first the notes"},
            {"agent": "ada", "step": 1, "reply": "Reading.", "calls": [call("file_read", path="notes/today.txt")]},
            {"agent": "ada", "reply": remembers("again")},
            {"agent": "bob", "calls": [call("memory_write", key="seen", value=1), call("memory_read")]},
        ],
    )
