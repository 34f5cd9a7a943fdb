"""The organisation of the corpus whose agents call the tools of an MCP server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mischief import by_http
from parts import call, remembers

from lemming.files import fs
from lemming.files.jsontext import pretty
from lemming.testing import make_org, resume, say


def served(base: Path, org: dict[str, Any]) -> None:
    """Two agents whose calls may be repeated: one that works, one with wrong arguments, one of no tool.

    The first use of the server writes down what it has.
    """
    calls = [call("mcp.sums.add", a=1, b=2), call("mcp.sums.add", a="x"), call("mcp.sums.none")]
    may = {"read_outboxes": [], "tools": ["mcp.sums.*"]}
    make_org(
        base,
        resume("ada", permissions=may, turn={"max_steps": 2}),
        resume("bob", permissions=may),
        org=org,
        script=[
            {"step": 0, "reply": say("calling", tool_calls=calls)},
            {"reply": remembers("called")},
        ],
    )
    settings = {"url": by_http(), "tools": ["add"], "trust_hints": True, "timeout_s": 600}
    fs.publish(base, "config/mcp.json", pretty({"servers": {"sums": settings}}))
