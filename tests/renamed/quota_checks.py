"""The quota holds, in an organisation in a temporary folder, with a scripted model."""

from pathlib import Path
from typing import Any

import lemming_quota
import pytest

from lemming.engine import run_once
from lemming.facts.problems import problems_of_agents
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.journal.report import TurnReport
from lemming.kernel.org.config import load_config
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say

FOR_ALL: dict[str, Any] = {"capabilities": {"quota": {"per_day": 2}}}


def turn(base: Path, **own: Any) -> TurnReport:
    """Take one turn of ada, who writes three entries in each."""
    three = say("one")
    three["outbox_entries"] += [say(text)["outbox_entries"][0] for text in ("two", "three")]
    if not (base / "agents").exists():
        make_org(base, resume("ada", **own), org=FOR_ALL, script=[{"reply": three}])
    return run_once(base, clock=FrozenClock()).turns[0]


def entries(base: Path) -> int:
    return len([*base.glob("agents/ada/outbox/*.json")])


def test_what_is_beyond_is_refused_and_the_model_is_told(tmp_path: Path) -> None:
    turn(tmp_path)
    assert entries(tmp_path) == 2
    assert read_state(tmp_path, "ada").kept["quota"]["written"] == 2
    turn(tmp_path)
    assert entries(tmp_path) == 2
    (started,) = (it for it in journal_lines(tmp_path, 2) if it["type"] == "turn_started")
    assert started["given"]["quota"]["written"] == 2
    assert "the quota of 2 entries a day is used up" in started["prompt"][-1]["content"]


def test_a_resume_says_more_for_one(tmp_path: Path) -> None:
    turn(tmp_path, capabilities={"quota": {"per_day": 9}})
    assert entries(tmp_path) == 3
    assert not [*problems_of_agents(tmp_path, load_config(tmp_path), "ada")]


@pytest.mark.parametrize(("kept", "left"), [("2026-01-01", 2), ("2025-12-31", 0)])
def test_a_new_day_begins_at_nothing(kept: str, left: int) -> None:
    assert lemming_quota.written_on("2026-01-01", {"day": kept, "written": 2}) == left
