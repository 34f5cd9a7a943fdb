"""The answers of a plan's steps are judged before they leave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from judged import BAD, CRITIC, HUMAN, SENT_BACK, entries, program, replays
from test_judged_answers import answer, asked, run_ticks

from lemming.cli import run
from lemming.testing import make_org, resume

PLANNER = resume("plan", model={"key": "plan"}, permissions={"read_outboxes": ["*"]})


def plan_org(base: Path, verify: dict[str, Any], *script: dict[str, Any]) -> None:
    steps = [{"name": "why", "ask": "bob", "task": "{{start}}", "verify": verify}]
    make_org(base, PLANNER, resume("bob", schedule={"wake": "addressed"}), CRITIC, HUMAN, script=[*script])
    (base / "agents/plan/plan.json").write_text(json.dumps({"steps": steps}))
    asked(base, "plan")


@pytest.mark.parametrize("then", ["flag", "fail"])
def test_a_plans_step_has_its_answer_judged(base: Path, then: str) -> None:
    verify = {"by": "critic", "policy": "Give a reason.", "max": 2, "then": then}
    plan_org(base, verify, BAD, answer("better", contains=SENT_BACK), answer("because"))
    assert run(["-C", str(base), "validate"]) == 0
    run_ticks(base, 4)
    (entry,) = entries(base, "bob")
    assert entry["tags"] == (["unverified"] if then == "flag" else [])
    answered = entries(base, "plan")[-1]["payload"]
    assert ("failed" if then == "fail" else "better") in json.dumps(answered)
    assert "verify" not in answered
    assert replays(base)


def test_a_program_judges_a_plans_step(base: Path) -> None:
    command = {"command": program(base, 'print(\'{"passes": true, "reason": ""}\')')}
    plan_org(base, {"by": command}, answer("because"))
    run_ticks(base, 4)
    assert entries(base, "bob")[0]["tags"] == []
    assert entries(base, "plan")[-1]["payload"]["text"] == "because"
