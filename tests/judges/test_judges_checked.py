"""What keeps a judge from judging is named before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from judged import CRITIC, DRAFT, GOOD, HUMAN, entries, turn_of

from lemming.cli import run
from lemming.engine import run_once
from lemming.testing import FrozenClock, journal_lines, make_org, resume


def test_a_policy_is_a_text_or_a_file(base: Path) -> None:
    (base / "shared").mkdir(parents=True)
    (base / "shared/policy.md").write_text("Nothing about the weather.")
    access = {"file_access": {"allow_read": ["./shared"], "allow_write": []}, "read_outboxes": ["*"]}
    verify = {"by": {"model": "scripted"}, "policy": "./shared/policy.md"}
    turn_of(base, GOOD, DRAFT, verify=verify, permissions=access)
    assert entries(base)[0]["tags"] == []
    started = next(line for line in journal_lines(base, 1) if line["type"] == "turn_started")
    assert started["given"]["judges"]["by"][0]["policy"] == "Nothing about the weather."
    (base / "shared/policy.md").unlink()
    (turn,) = (turn for turn in run_once(base, clock=FrozenClock()).turns if turn.agent == "ada")
    assert (turn.status, turn.calls) == ("failed", 0)


@pytest.mark.parametrize(
    ("verify", "said"),
    [
        ({"by": "critc"}, 'no agent and no model key "critc"'),
        ({"by": {"agent": "scripted"}}, 'no agent "scripted"'),
        ({"by": {"model": "critic"}}, 'there is no model key "critic"'),
        ({"by": {}}, "verify.by must be a name"),
        ({"by": "critic", "max": 0}, "at least 1"),
        ({"by": "critic", "then": "flagg"}, "flag"),
        ({"by": "human"}, "cannot judge"),
        ({"by": "critic", "policy": "./shared/none.md"}, "none.md"),
        ({"by": "critic", "polcy": "x"}, "policy"),
    ],
)
def test_validate_names_what_keeps_a_judge_from_judging(
    base: Path, capsys: pytest.CaptureFixture[str], verify: dict[str, Any], said: str
) -> None:
    for place in ("own", "team"):
        own = {"verify": verify} if place == "own" else {"team": {"ask": [{"agent": "bob", "verify": verify}]}}
        make_org(base / place, resume("ada", **own), resume("bob"), CRITIC, HUMAN)
        assert run(["-C", str(base / place), "validate"]) in (0, 3)
        told = capsys.readouterr()
        assert said in told.out + told.err, place


def test_validate_warns_of_an_author_who_may_write_its_policy(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    access = {"allow_read": ["./shared"], "allow_write": ["./shared"]}
    verify = {"by": "critic", "policy": "./shared/policy.md"}
    make_org(base, resume("ada", verify=verify, permissions={"file_access": access}), CRITIC)
    (base / "shared").mkdir(exist_ok=True)
    (base / "shared/policy.md").write_text("Be short.")
    assert run(["-C", str(base), "validate"]) == 0
    told = capsys.readouterr()
    assert "ada may write ./shared/policy.md, the policy of its own judge" in told.out + told.err


def test_a_program_that_judges_is_agreed_to_before_it_runs(base: Path) -> None:
    from lemming.kernel.agents import survey_agents
    from lemming.kernel.org.config import load_config
    from lemming.queries.permissions_required import list_required_permissions

    verify = {"by": {"command": ["./check.sh", "-q"]}}
    make_org(base, resume("ada", verify=verify))
    (base / "check.sh").write_text("exit 1")
    reached = list_required_permissions(base, load_config(base), survey_agents(base).agents.values())
    (reach,) = (it for it in reached if "which judges what ada writes" in it.does)
    assert reach.does.startswith("runs the program: ./check.sh -q,")
    assert reach.needs_agreement
    assert list(reach.bound_to) == ["agents/ada/resume.json#/verify/by", "check.sh"]
