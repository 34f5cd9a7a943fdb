"""An agent whose calls pass gates, in one turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lemming.engine import run_once
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say


def call(tool: str, **args: Any) -> dict[str, Any]:
    return {"tool": tool, "args": args}


def line(place: int) -> str:
    return f"config/org.json#/gates/{place}"


def org(base: Path, gates: list[dict[str, Any]], *calls: dict[str, Any], own: Any = ()) -> Path:
    """Return an organisation of one agent that calls these tools in its first turn."""
    permissions = {"read_outboxes": ["*"], "tools": ["file_*", "shell", "store_*"]}
    agent = resume("ada", permissions=permissions, turn={"max_steps": 2}, gates=[*own])
    script = [{"tick": 1, "step": 0, "reply": say("calling", tool_calls=[*calls])}, {"reply": say("done")}]
    return make_org(base, agent, script=script, org={"gates": gates})


def turn_of(base: Path) -> Any:
    (turn,) = run_once(base, clock=FrozenClock()).turns
    return turn


def finished(base: Path, tick: int = 1) -> list[dict[str, Any]]:
    return [it for it in journal_lines(base, tick) if it["type"] == "tool_finished"]
