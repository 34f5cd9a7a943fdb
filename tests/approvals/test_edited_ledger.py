"""What somebody writes into a ledger in the place of an approval stops that agent, and nobody else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lemming.cli import run
from lemming.engine import run_once
from lemming.testing import FrozenClock, make_org, resume, say

CALL = {"id": "1/ada/0", "tool": "show", "args": {"entry": "x"}, "sha256": "", "binds": {}, "gate": "", "why": ""}
LIMIT = {"at": "spend", "credits": 100, "per": "agent", "then": "ask"}
HELD = [{}, {"approvals": {}}, {"approvals": {**CALL, "args": {}}}, {"approvals": {**CALL, "args": 3}},
        {"approvals": {**CALL, "tool": "spend", "args": {"of": "x", "credits": "many"}}}]  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "kept",
    [
        *({"asked": wrong} for wrong in (3, [3], {"a": 1}, [{"request": 1, "to": 2}])),
        *({"asked": [{"request": "human/1_x", "to": "human", "held": held}]} for held in HELD),
        {"used": 7},
        {"used": [7]},
    ],
    ids=json.dumps,
)
def test_an_approval_that_is_none_concerns_its_agent(tmp_path: Path, kept: dict[str, Any]) -> None:
    human = resume("human", model={"key": "human"}, permissions={"read_outboxes": ["*"]})
    agents = [resume(name, permissions={"read_outboxes": ["human"]}) for name in ("ada", "bob")]
    org = {"retention_ticks": 1, "gates": [LIMIT]}
    models = {"human": {"provider": "human"}}
    base = make_org(tmp_path / "org", *agents, human, models=models, org=org, script=[{"reply": say("hello")}])
    run_once(base, clock=FrozenClock())
    ledger = base / "agents/ada/turns.jsonl"
    plain = json.loads(ledger.read_text())
    ledger.write_text(json.dumps({**plain, "kept": {"approvals": kept}}) + "\n")
    for _ in range(3):
        turns = {turn.agent: turn for turn in run_once(base, clock=FrozenClock()).turns}
        assert turns["ada"].status == "failed"
        assert "agents/ada/turns.jsonl" in turns["ada"].reason
        assert turns["bob"].status == "done"
    for command in ("status", "approvals", "waiting"):
        assert run(["-C", str(base), command]) in (0, 1)
