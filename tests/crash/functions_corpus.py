"""The organisation of the corpus whose agents call functions: how a call ends, and what it may ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parts import call, remembers

from lemming.kernel.files import fs
from lemming.testing import make_org, resume, say

CODE = """
from lemming.tools import RecoverableError, ToolContext, ToolResult, tool

@tool(repeatable=True, process=False, reads=["shared"], writes=[], cache_ticks=1)
def look(ctx: ToolContext, name: str) -> str:
    file = ctx.base / "shared" / name
    return file.read_text() if file.exists() else "nothing"

@tool(repeatable=True, process=False, independent=True)
def count(ctx: ToolContext, step: int = 1) -> dict:
    ctx.state["n"] = ctx.state.get("n", 0) + step
    ctx.memory["last"] = ctx.call_id
    ctx.emit("report", {"text": f"{ctx.state['n']} by now"})
    return {"n": ctx.state["n"], "key": ctx.idempotency_key}

@tool(repeatable=True, process=False, independent=True, parallel=True)
def seek(ctx: ToolContext, name: str) -> str:
    if name == "nowhere":
        raise RecoverableError("it is not here")
    ctx.emit("report", {"text": f"seen: {name}", "not_before": "in a moment"})
    return f"{name} {ctx.idempotency_key}"

@tool(repeatable=True, process=False, independent=True, parallel=True)
def tally(ctx: ToolContext, name: str) -> int:
    ctx.state[name] = len(ctx.state)
    ctx.memory[f"seen.{name}"] = ctx.call_id
    return len(ctx.state)

@tool(repeatable=True, process=False, independent=True, parallel=True, cache_ticks=3)
def price(ctx: ToolContext, name: str) -> str:
    return f"{name} {ctx.idempotency_key}"

@tool(repeatable=True, process=False, independent=True)
def much() -> str:
    return "line\\n" * 8000

@tool(repeatable=True, process=False, independent=True, on_error="skip")
def whisper() -> str:
    raise ValueError("nobody hears")

@tool(repeatable=True, process=False, independent=True, on_error="stop")
def stop() -> str:
    raise ValueError("no more")

@tool(repeatable=True, process=False, independent=True)
def refuse(how: str) -> ToolResult:
    if how == "recoverable":
        raise RecoverableError("say it otherwise")
    if how == "error":
        raise KeyError(how)
    return ToolResult(False, "not this one", outcome="refused")
"""


def functions(base: Path, org: dict[str, Any]) -> None:
    """Agents that call functions: one over two steps, one whose turn a function ends, some at once."""
    calls = [
        call("look", name="README.txt"),
        call("count", step="2"),
        call("much"),
        call("refuse", how="recoverable"),
        call("refuse", how="error"),
        call("refuse", how="otherwise"),
        call("count", steps=1),
        call("whisper"),
        call("count"),
        call("cout"),
    ]
    at_once = [call("seek", name=name) for name in ("here", "nowhere", "there")]
    kept = [call(tool, name=name) for tool in ("tally", "price") for name in ("here", "there", "here")]
    may = {"read_outboxes": [], "tools": ["look", "tally", "price", "seek", "count", "much", "ref*", "whisper", "stop"]}
    make_org(
        base,
        resume("ada", permissions=may, turn={"max_steps": 2}),
        resume("bob", permissions={**may, "tools": ["count", "seek", "tally", "price"]}),
        resume("cyd", permissions=may),
        org={**org, "tool_files": ["tools/*.py"]},
        script=[
            {"agent": "ada", "step": 0, "reply": say("calling", tool_calls=calls)},
            {"agent": "ada", "step": 1, "reply": remembers("called", tool_calls=calls[:2] + at_once)},
            {"agent": "cyd", "reply": say("calling", tool_calls=[call("count"), call("stop"), call("much")])},
            {"agent": "bob", "reply": say("calling too", tool_calls=at_once + kept + calls[1:3])},
        ],
    )
    fs.write_atomic(base, "tools/mine.py", CODE.encode())
    fs.write_atomic(base, "shared/README.txt", b"read me\n")
