"""The quota holds, in an organisation in a temporary folder, with a scripted model."""

import json
from pathlib import Path
from typing import Any

import lemming_quota
import pytest

from lemming.cli import run
from lemming.engine import load_tick, run_once
from lemming.testing import Crash, FrozenClock, crash_at, journal_lines, make_org, resume, say, tree

FOR_ALL: dict[str, Any] = {"capabilities": {"quota": {"per_day": 2}}}


def make(base: Path, *others: str, engine: dict[str, Any] | None = None, **own: Any) -> Path:
    """Return an organisation of ada, who writes three entries in each turn, and of others who do the same."""
    three = say("one")
    three["outbox_entries"] += [say(text)["outbox_entries"][0] for text in ("two", "three")]
    agents = [resume("ada", **own), *map(resume, others)]
    return make_org(base, *agents, org={**FOR_ALL, **(engine or {})}, script=[{"reply": three}])


def turn(base: Path) -> None:
    run_once(base, clock=FrozenClock())


def entries(base: Path) -> int:
    return len([*base.glob("agents/ada/outbox/*.json")])


def test_what_is_beyond_is_refused_and_the_model_is_told(tmp_path: Path) -> None:
    turn(make(tmp_path))
    assert entries(tmp_path) == 2
    (line,) = (tmp_path / "agents/ada/turns.jsonl").read_text().splitlines()
    assert json.loads(line)["kept"]["quota"]["written"] == 2
    turn(tmp_path)
    assert entries(tmp_path) == 2
    (started,) = (it for it in journal_lines(tmp_path, 2) if it["type"] == "turn_started")
    assert started["given"]["quota"]["written"] == 2
    assert "the quota of 2 entries a day is used up" in started["prompt"][-1]["content"]


def test_a_resume_says_more_for_one_and_a_look_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    turn(make(tmp_path, capabilities={"quota": {"per_day": 9}}))
    assert entries(tmp_path) == 3
    assert run(["-C", str(tmp_path), "validate"]) == 0
    assert "9 entries a day are more than the 2 of all others" in capsys.readouterr().err


@pytest.mark.parametrize(("kept", "left"), [("2026-01-01", 2), ("2025-12-31", 0)])
def test_a_new_day_begins_at_nothing(kept: str, left: int) -> None:
    assert lemming_quota.written_on("2026-01-01", {"day": kept, "written": 2}) == left


def test_a_kill_at_each_change_of_the_disk_gives_the_same_files(tmp_path: Path) -> None:
    whole = make(tmp_path / "whole")
    with crash_at(10**9) as changes:  # never: the list of all changes
        turn(whole)
    for number in range(1, len(changes) + 1):
        base = make(tmp_path / str(number))
        with pytest.raises(Crash), crash_at(number):
            turn(base)
        if load_tick(base) == 1:  # after the last changes the tick is over already
            turn(base)
        assert tree(base) == tree(whole)


def test_a_replay_finds_no_difference(tmp_path: Path) -> None:
    turn(make(tmp_path))
    assert run(["-C", str(tmp_path), "replay"]) == 0


def test_eight_turns_at_once_write_the_bytes_of_one_after_another(tmp_path: Path) -> None:
    for key, value in (("max_parallel", 8), ("executor", "serial")):
        turn(make(tmp_path / key, "bob", "eve", "joe", engine={key: value}))
    without = (".lemming", "logs", "config")  # the settings differ
    assert tree(tmp_path / "executor", without=without) == tree(tmp_path / "max_parallel", without=without)
