"""Organisations whose agents call tools of MCP servers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from patience import PATIENCE_S

from lemming.testing import make_org, resume, say

MISCHIEF = Path(__file__).with_name("mischief.py")


def server(*words: str, **settings: Any) -> dict[str, Any]:
    """Return the settings of the small server, which needs no more than Python."""
    command = [sys.executable, "-S", str(MISCHIEF), *words]
    return {"command": command, "start_timeout_s": PATIENCE_S, "timeout_s": PATIENCE_S, **settings}


def call(tool: str, **args: Any) -> dict[str, Any]:
    return {"tool": tool, "args": args}


def org_with(
    base: Path, servers: dict[str, Any], *calls: dict[str, Any], tools: list[str] | None = None, **settings: Any
) -> Path:
    """Make an organisation in which ada makes these calls in every tick."""
    may = {"read_outboxes": [], "tools": ["mcp.*"] if tools is None else tools}
    make_org(
        base,
        resume("ada", permissions=may),
        script=[{"agent": "ada", "reply": say("calling", tool_calls=list(calls))}],
        org=settings,
    )
    configure(base, servers)
    return base


def configure(base: Path, servers: dict[str, Any]) -> None:
    (base / "config/mcp.json").write_text(json.dumps({"servers": servers}))


def known(base: Path) -> dict[str, Any]:
    """Return the tools that were accepted, by server."""
    plain = json.loads((base / "config/mcp.lock.json").read_text())
    return {name: it["tools"] for name, it in plain["servers"].items()}
