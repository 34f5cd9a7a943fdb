"""The organisations of the corpus that spend credits: their own, or on agents that they hire."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parts import call, remembers

from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.testing import make_org, resume, say


def staff(base: Path, org: dict[str, Any]) -> None:
    """An agent that makes another out of its credits, which takes its turns from the next tick on."""
    new = call("create_agent", name="eve", title="Eve", instructions="You are eve.", model_key="scripted")
    make_org(
        base,
        resume("hr", permissions={"read_outboxes": ["*"], "tools": ["create_agent"]}, credits={"max_credits": 9}),
        org=org,
        script=[{"agent": "hr", "reply": say("hiring", tool_calls=[new])}, {"reply": remembers("I am new")}],
    )


def spending(base: Path, org: dict[str, Any]) -> None:
    """Credits that run out, a soft cap that is passed, an allocation that overrides the resume."""
    make_org(
        base,
        resume("ada", credits={"max_credits": 1}),
        resume("bob", credits={"soft_cap": 1}),
        resume("cyd", credits={"max_credits": 9}, turn={"max_steps": 3}),
        org=org,
        script=[{"agent": "cyd", "reply": say("more", tool_calls=[call("list_agents")])}, {"reply": say("paid")}],
    )
    fs.write_atomic(base, "config/credits.json", dump_pretty({"cyd": {"max_credits": 2}}))


def hiring(base: Path, org: dict[str, Any]) -> None:
    """Agents made out of their creator's credits, half of what is left and a sum, until there are none."""
    new = [
        call("create_agent", name=name, title=name, instructions="Work.", model_key="scripted", **credits)
        for name, credits in (("eve", {}), ("fay", {"max_credits": 1}), ("gus", {"max_credits": 90}))
    ]
    make_org(
        base,
        resume("hr", permissions={"tools": ["create_agent"]}, credits={"max_credits": 5}),
        org=org,
        script=[{"agent": "hr", "reply": remembers("hiring", tool_calls=new)}, {"reply": say("I am new")}],
    )
