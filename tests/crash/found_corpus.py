"""The organisation of the corpus whose agents search for tools that they are not told of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parts import call, remembers

from lemming.kernel.files import fs
from lemming.testing import SCRIPT_FILE, make_org, resume

CODE = """
from lemming.tools import ToolContext, tool

@tool(repeatable=True, process=False, independent=True)
def desk_open(ctx: ToolContext, subject: str, tags: list[str] | None = None) -> str:
    "Open an issue."
    ctx.memory["opened"] = subject
    return f"{subject} {ctx.idempotency_key}"

@tool(repeatable=True, process=False, independent=True)
def desk_count(ctx: ToolContext) -> int:
    "Count issues."
    ctx.state["n"] = ctx.state.get("n", 0) + 1
    return ctx.state["n"]
"""


def found(base: Path, org: dict[str, Any]) -> None:
    """Searches, natively and in the contract; calls of what was found, in the same turn and in the next."""
    may = {"read_outboxes": ["*"], "tools": ["desk_*"]}
    search, opened = call("tool_search", query="open an issue"), call("desk_open", subject="late")
    entry = {"provider": "scripted", "options": {"file": SCRIPT_FILE}, "tools_share": 0.0}
    make_org(
        base,
        resume("ada", model={"key": "native"}, permissions=may, turn={"max_steps": 4}),
        resume("bob", permissions=may, turn={"max_steps": 2}),
        org={**org, "tool_files": ["tools/*.py"]},
        models={"native": {**entry, "tools": "native"}, "scripted": entry},
        script=[
            {"agent": "ada", "step": 0, "calls": [search]},
            {"agent": "ada", "step": 1, "calls": [opened, call("tool_search", query="count")]},
            {"agent": "ada", "step": 2, "calls": [call("desk_count")]},
            {"agent": "ada", "reply": remembers("opened")},
            {"agent": "bob", "tick": 1, "reply": remembers("looking", tool_calls=[search])},
            {"agent": "bob", "reply": remembers("opening", tool_calls=[opened, search])},
        ],
    )
    fs.write_atomic(base, "tools/desk.py", CODE.encode())
