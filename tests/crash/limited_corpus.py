"""The organisation of the corpus that may spend only so much."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parts import by_hand, call, remembers

from lemming.testing import make_org, resume, say

BOB = {"field": "agent", "op": "is", "value": "bob"}
GATES = [
    {"at": "spend", "then": "warn", "calls": 2, "per": "turn"},
    {"at": "spend", "then": "block", "credits": 10, "per": "organisation", "window": {"ticks": 2}},
    {"at": "spend", "then": "block", "calls": 2, "per": "request"},
    {"at": "spend", "then": "ask", "calls": 2, "per": "agent", "when": BOB},
    {"at": "spend", "then": "warn", "tokens": 7000, "per": "organisation", "window": {"ticks": 2}},
    {"at": "spend", "then": "ask", "tokens": 9000, "per": "agent", "when": BOB},
    {"at": "spend", "then": "block", "models": ["scripted", "dear"]},
]


def limited(base: Path, org: dict[str, Any]) -> None:
    """Limits reached in a correction, by turns at once, for a request, passed again, and asked about."""
    dear = {"provider": "scripted", "options": {"file": "config/answers.jsonl"}, "per_call": 1.5}
    more = say("more", tool_calls=[call("memory_read", key="plan")])
    make_org(
        base,
        resume("ada", turn={"max_steps": 3}, permissions={"read_outboxes": []}),
        resume("bob", model={"key": "dear"}, permissions={"read_outboxes": ["human"]}),
        resume("cyd", permissions={"read_outboxes": []}, gates=[{**GATES[0], "then": "stop"}]),
        resume("dan", model={"key": "local", "fallback": ["dear"]}),
        resume("eve", schedule={"wake": "addressed"}, turn={"take": "one", "max_steps": 3}),
        resume("human", model={"key": "human"}),
        models={"dear": dear, "local": {**dear, "per_call": 0}},
        org={**org, "gates": GATES},
        script=[
            {"agent": "ada", "reply": more},
            {"agent": "cyd", "step": 1, "reply": remembers("put right")},
            {"agent": "cyd", "reply": "no"},
            {"agent": "eve", "reply": more},
            {"reply": remembers("paid")},
        ],
    )
    by_hand(base, "human", 0, "0123456789ab", text="what?", target="eve")
