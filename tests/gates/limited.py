"""Organisations whose gates at `spend` limit what their agents may spend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lemming.engine import run_once
from lemming.kernel.files import fs
from lemming.kernel.journal.turn_report import TurnReport
from lemming.testing import FrozenClock, make_org, resume, say

SCRIPTED = {"provider": "scripted", "options": {"file": "config/answers.jsonl"}, "attempts": 1}
PRICED = {**SCRIPTED, "usd_per_million_input_tokens": 1.0, "usd_per_million_output_tokens": 10.0}
MODELS: dict[str, Any] = {
    "priced": {**PRICED, "model": "priced"},
    "other": {**SCRIPTED, "model": "other"},
    "down": {**SCRIPTED, "model": "down", "options": {"file": "config/down.jsonl"}},
}
HELLO = [{"reply": say("hello"), "input_tokens": 100, "output_tokens": 10}]


def spend(then: str = "block", **limit: Any) -> dict[str, Any]:
    return {"at": "spend", "then": then, **limit}


def limited(base: Path, *gates: dict[str, Any], agents: Any = ("ada",), script: Any = HELLO, **org: Any) -> Path:
    resumes = [it if isinstance(it, dict) else resume(it) for it in agents]
    make_org(base, *resumes, org={"gates": [*gates], **org}, script=script, models=MODELS)
    fs.write_atomic(base, "config/down.jsonl", b'{"error": "Unavailable"}\n')
    return base


def turns(base: Path) -> dict[str, TurnReport]:
    return {turn.agent: turn for turn in run_once(base, clock=FrozenClock()).turns}


def calls(base: Path, ticks: int, agent: str = "ada") -> list[int]:
    return [turns(base)[agent].calls for _ in range(ticks)]
