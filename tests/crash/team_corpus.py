"""The organisation of the corpus in which agents ask each other and hand requests on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lemming.messages import send
from lemming.testing import make_org, resume, say


def call(tool: str, **args: Any) -> dict[str, Any]:
    return {"tool": tool, "args": args}


def team(base: Path, org: dict[str, Any]) -> None:
    """Two questions that become six, one handed on, with budgets and a deadline that passes."""
    quiet = {"schedule": {"wake": "addressed"}}
    asks = [
        call("ask_ann", message="a?"),
        call("ask_bob", message="b?"),
        call("ask_cyd", message="c?", deadline=1),
    ]
    make_org(
        base,
        resume("desk", team={"ask": ["ann", "bob", "cyd"], "hand_to": ["bill"]}, **quiet),
        resume("ann", team={"ask": ["bob"]}, **quiet),
        resume("bob", **quiet),
        resume("bill", **quiet),
        resume("cyd", schedule={"run_every_n_ticks": 50}),
        resume("human", model={"key": "human"}),
        org=org,
        models={"human": {"provider": "human"}},
        script=[
            {"agent": "desk", "contains": '"output": "', "reply": say("all of it", kind="response")},
            {
                "agent": "desk",
                "contains": "bill",
                "reply": say("", tool_calls=[call("hand_to_bill", message="x")]),
            },
            {"agent": "desk", "reply": {**say("busy", kind="status"), "tool_calls": asks}},
            {"agent": "ann", "contains": '"output": "', "reply": say("from bob", kind="response")},
            {
                "agent": "ann",
                "reply": {**say("busy", kind="status"), "tool_calls": [call("ask_bob", message="?")]},
            },
            {"reply": say("here", kind="response")},
        ],
    )
    for number, (text, more) in enumerate((("hard", {"budget": 20}), ("bill", {}))):
        payload = {"text": text, "target": "desk", "conversation": str(number), **more}
        send(base, "human", tick=1, kind="request", payload=payload, tags=[], created_at="")
