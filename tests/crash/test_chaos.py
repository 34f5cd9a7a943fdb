"""`lemming check chaos` kills real processes on a copy, and neither pays nor touches anything but the copy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from corpus import plain

from lemming.cli import run
from lemming.commands.chaos import ChaosResult, count_concurrent_turns
from lemming.engine import run_once
from lemming.evals.case_copy import ANSWERS_FILE, copy_org
from lemming.kernel.files import fs
from lemming.kernel.org.config import load_config
from lemming.testing import make_org, resume, say, tree, write_script

pytestmark = pytest.mark.crash


def script_of(copy: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (copy / ANSWERS_FILE).read_text().splitlines()]


@pytest.mark.long
def test_killed_processes_come_to_the_files_of_a_run_in_peace(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain(base, {})
    run_once(base)
    before = tree(base, without=())
    status = run(["-C", str(base), "chaos", "--kills", "2", "--seed", "47", "--json"])
    (tally,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert status == 0
    assert tally["type"] == "chaos"
    assert tally["kills"] == 2
    assert tally["is_as_promised"]
    assert tally["doubled"] == tally["lost"] == tally["different"] == []
    assert tally["calls_repeated"] <= 2
    assert tree(base, without=()) == before


@pytest.mark.long
def test_a_memory_written_at_another_time_of_day_is_no_difference(
    base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watching = {"permissions": {"read_outboxes": ["ada"]}, "schedule": {"wake": "changed"}}
    learns = say("news", memory_updates=[{"key": "last", "value": "news"}])
    make_org(base, resume("ada"), resume("bob", **watching), script=[{"reply": learns}])
    run_once(base)
    run(["-C", str(base), "chaos", "--kills", "1", "--seed", "7", "--json"])
    (tally,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert tally["different"] == []


@pytest.mark.parametrize(
    ("executor", "is_as_promised"), [("threads", True), ("serial", False)], ids=["at once", "one by one"]
)
def test_a_kill_may_repeat_the_calls_of_all_turns_that_go_at_once(
    base: Path, executor: str, is_as_promised: bool
) -> None:
    make_org(base, *(resume(name) for name in ("ada", "bob", "cyd")), org={"executor": executor})
    tally = ChaosResult(seed=0, kills=1, calls_repeated=3, at_once=count_concurrent_turns(base))
    assert tally.meets_guarantee is is_as_promised


def test_a_copy_answers_with_what_the_journals_hold(base: Path, tmp_path: Path) -> None:
    make_org(base, resume("ada"), script=[{"tick": 1, "reply": say("first")}, {"reply": say("second")}])
    run_once(base)
    run_once(base)
    copy = copy_org(base, tmp_path / "copy", kills=1)
    write_script(base, [{"reply": say("paid")}])
    reports = [run_once(copy) for _ in range(2)]
    texts = [
        json.loads((copy / turn.entries[0]["file"]).read_text())["payload"]["text"]
        for report in reports
        for turn in report.turns
    ]
    assert texts == ["first", "second"]
    assert {entry.provider for entry in load_config(copy).models.values()} == {"stand-in", "human"}


def test_a_copy_keeps_off_the_cluster_and_waits_for_no_backend(base: Path, tmp_path: Path) -> None:
    paced = {"provider": "scripted", "options": {"file": "config/answers.jsonl"}, "requests_per_minute": 1}
    settings = {"executor": "dask", "executor_address": "tcp://127.0.0.1:1"}
    make_org(base, resume("ada"), org=settings, models={"scripted": paced})
    copy = copy_org(base, tmp_path / "copy", kills=1)
    assert [run_once(copy).turns[0].status for _ in range(2)] == ["done", "done"]
    assert load_config(copy).models["scripted"].requests_per_minute is None


def test_a_copy_calls_no_tool_with_effects_outside(base: Path, tmp_path: Path) -> None:
    calls = [{"tool": "shell", "args": {"command": "true"}}, {"tool": "memory_write", "args": {"key": "a", "value": 1}}]
    make_org(
        base, resume("ada", permissions={"tools": ["memory_write"]}), script=[{"reply": say("x", tool_calls=calls)}]
    )
    run_once(base)
    copy = copy_org(base, tmp_path / "copy", kills=1)
    replies = [line["reply"] for line in script_of(copy) if line.get("agent") == "ada"]
    assert replies
    for reply in replies:
        assert isinstance(reply, dict)
        assert [call["tool"] for call in reply["tool_calls"]] == ["memory_write"]


def test_a_copy_may_write_nowhere_else(base: Path, tmp_path: Path) -> None:
    grants = {"allow_read": ["/data"], "allow_write": ["./workspace", "/data"]}
    make_org(base, resume("ada", permissions={"tools": ["file_write"], "file_access": grants}))
    fs.write_atomic(base, "agents/torn/resume.json", b"{")
    fs.write_atomic(base, "shared/note.txt", b"kept")
    copy = copy_org(base, tmp_path / "copy", kills=1)
    copied = json.loads((copy / "agents/ada/resume.json").read_text())
    assert copied["permissions"]["file_access"]["allow_write"] == ["./workspace"]
    assert (copy / "shared/note.txt").read_bytes() == b"kept"
    assert (copy / "agents/torn/resume.json").read_bytes() == b"{"


def test_a_number_of_kills_that_is_none_is_refused(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_org(base, resume("ada"))
    assert run(["-C", str(base), "chaos", "--kills", "0"]) == 2
    assert "--kills" in capsys.readouterr().err
