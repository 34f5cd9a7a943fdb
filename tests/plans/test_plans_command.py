"""`lemming plans`: what is shown of plans and runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from asked import ask, tick
from planned import planned_org, step

from lemming.cli import run

GOOD = {"field": "answer.text", "op": "contains", "value": 'a "quote"'}


def lemming(base: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    status = run(["-C", str(base), *words])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def org(base: Path) -> Path:
    return planned_org(
        base,
        {"name": "both", "parallel": [step("x", "ada"), step("y", "bob")]},
        step("judge", "bob", routes=[{"when": GOOD, "to": "end"}], **{"else": "both2"}),
        {"name": "both2", "wait": {"ticks": 3}},
        description="Two and a judge.",
    )


def test_plans_are_listed_with_runs_that_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = org(tmp_path)
    request = ask(base, "desk")
    tick(base)
    status, out, _ = lemming(base, capsys, "plans")
    assert status == 0
    assert "Two and a judge." in out
    assert request.id in out
    assert "the answer to x; the answer to y" in out
    status, out, _ = lemming(base, capsys, "plans", "--json")
    plain = json.loads(out)
    assert [each["step"] for each in plain["runs"]] == ["both"]


def test_a_plan_that_cannot_be_read_is_listed_with_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = org(tmp_path)
    (base / "agents/desk/plan.json").write_text('{"steps": 3}')
    status, out, _ = lemming(base, capsys, "plans")
    assert (status, "cannot be read: " in out) == (0, True)
    status, _, err = lemming(base, capsys, "plans", "show", "desk")
    assert (status, "run `lemming validate desk`" in err) == (3, True)


def test_a_run_whose_request_was_cancelled_is_said_to_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = org(tmp_path)
    request = ask(base, "desk")
    tick(base)
    assert lemming(base, capsys, "cancel", request.id)[0] == 0
    tick(base)
    assert "cancelled" in lemming(base, capsys, "plans", "show", "desk")[1]


def test_a_plan_is_shown_step_by_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = org(tmp_path)
    status, out, _ = lemming(base, capsys, "plans", "desk")
    assert status == 0
    assert "asks bob" in out
    assert "end or both2" in out


def test_who_follows_no_plan_is_told_who_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = lemming(org(tmp_path), capsys, "plans", "show", "ada")
    assert status == 2
    assert "agents with plans: desk" in err
