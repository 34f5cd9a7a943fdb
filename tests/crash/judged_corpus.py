"""The organisation of the corpus whose drafts are judged before they leave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parts import by_hand, call, remembers

from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.testing import make_org, resume, say


def judged(base: Path, org: dict[str, Any]) -> None:
    """Drafts that pass, are written again, are flagged and fail; for an agent, who asked it, and a plan."""
    better = remembers("a better one", tool_calls=[call("file_write", path="b", content="2")])
    asks = say("busy", kind="status", tool_calls=[call("ask_bob", message="why?")])
    told = "It did not pass"
    works = say("short", tool_calls=[call("file_write", path="a", content="1"), call("memory_read", key="x")])
    tools = {"tools": ["file_write"], "read_outboxes": ["*"]}
    wakes = {"wake": "addressed"}
    gates = [
        {"at": "call", "tool": "file_write", "by": {"agent": "critic"}, "then": "block"},
        {"at": "result", "by": "critic", "then": "warn"},
        {"at": "out", "by": "critic", "policy": "Be brief.", "then": "block"},
    ]
    make_org(
        base,
        resume("ada", permissions=tools, turn={"max_steps": 2}, verify={"by": "critic", "max": 2}),
        resume("desk", schedule=wakes, team={"ask": [{"agent": "bob", "verify": {"by": "critic", "max": 1}}]}),
        resume("bob", schedule=wakes),
        resume("cyd", verify={"by": {"command": ["sh", "./no.sh"]}, "then": "fail", "max": 1}),
        resume("dan", credits={"max_credits": 1}, verify={"by": "critic"}),
        resume("eve", permissions=tools, gates=gates, verify={"by": "critic", "max": 1, "then": "pass"}),
        resume("critic", paused="it judges only"),
        resume("plan", model={"key": "plan"}),
        resume("human", model={"key": "human"}),
        org=org,
        script=[
            {"agent": "desk", "contains": '"output": "', "reply": say("told", kind="response")},
            {"agent": "desk", "reply": asks},
            {"agent": "eve", "contains": "Judge the draft", "step": 2, "reply": {"passes": False, "reason": "-"}},
            {"agent": "ada", "contains": "Judge the draft", "reply": {"passes": False, "reason": "short"}},
            {"contains": "Judge the draft", "step": 1, "reply": {"passes": False, "reason": "why"}},
            {"contains": "Judge the draft", "reply": {"passes": True, "reason": ""}},
            {"agent": "bob", "contains": told, "reply": say("because", kind="response")},
            {"agent": "bob", "reply": say("so", kind="response")},
            {"contains": told, "reply": better},
            {"agent": "ada", "contains": "Results of", "reply": remembers("short")},
            {"agent": "ada", "reply": works},
            {"agent": "eve", "reply": works},
            {"reply": remembers("a draft")},
        ],
    )
    fs.write_atomic(base, "no.sh", b'echo \'{"passes": false, "reason": "no"}\'\n')
    verify = {"by": {"agent": "critic"}, "policy": "Say why.", "then": "pass"}
    step = {"name": "why", "ask": "bob", "task": "{{start}}", "verify": verify}
    fs.write_atomic(base, "agents/plan/plan.json", dump_pretty({"steps": [step]}))
    by_hand(base, "human", 0, "5e7c09a6a8b2", text="See.", target="desk", conversation="")
    by_hand(base, "human", 0, "5e7c09a6a8b3", text="Why?", target="plan", conversation="")
