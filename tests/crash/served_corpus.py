"""The organisations of the corpus whose agents call the tools of an MCP server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mischief import by_http
from parts import by_hand, call, remembers

from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.messages import entry_id
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
        script=[{"step": 0, "reply": say("calling", tool_calls=calls)}, {"reply": remembers("called")}],
    )
    settings = {"url": by_http(), "tools": ["add"], "trust_hints": True, "timeout_s": 600}
    fs.write_atomic(base, "config/mcp.json", dump_pretty({"servers": {"sums": settings}}))


def asked_back(base: Path, org: dict[str, Any]) -> None:
    """A server that asks a person before it does what it was called for; the answer is there in time."""
    book = call("mcp.desk.book", table=3)
    make_org(
        base,
        resume("ada", permissions={"read_outboxes": ["human"], "tools": ["mcp.desk.*"]}),
        resume("human", model={"key": "human"}, permissions={"read_outboxes": ["ada"]}),
        org=org,
        models={"human": {"provider": "human"}},
        script=[
            {"tick": 1, "reply": say("booking", tool_calls=[book])},
            {"contains": "Call it again", "reply": remembers("booked", tool_calls=[book])},
            {"reply": say("nothing more")},
        ],
    )
    settings = {"url": by_http("asks"), "tools": ["book"], "trust_hints": True, "timeout_s": 600}
    fs.write_atomic(base, "config/mcp.json", dump_pretty({"servers": {"desk": settings}}))
    by_hand(base, "human", 1, "yes", kind="response", reply_to=entry_id(1, "ada", 1), sure=True)
