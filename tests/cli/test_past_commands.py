"""The commands about the past: history, show, diff, fork, rewind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from terminal import Lemming

from lemming.engine import load_tick
from lemming.kernel.files import fs
from lemming.operations.open_org import open_org
from lemming.testing import make_org, resume, say

NO_HISTORY = [["history"], ["rewind", "--to", "1"]]


@pytest.fixture
def past(base: Path, lemming: Lemming) -> Path:
    """Three ticks with a history."""
    script: list[dict[str, Any]] = [{"agent": "bob", "reply": say("\x1b[2Jhello\nyou")}, {"reply": say("hi")}]
    org = {"history": "git", "durability": "off"}
    make_org(base, resume("ada"), resume("bob", schedule={"run_every_n_ticks": 2}), script=script, org=org)
    for _ in range(3):
        lemming("run-once", "-q")
    return base


@pytest.mark.parametrize("words", NO_HISTORY, ids=lambda words: words[0])
def test_without_a_history_each_command_says_how_to_turn_it_on(base: Path, lemming: Lemming, words: list[str]) -> None:
    make_org(base, resume("ada"))
    ran = lemming(*words)
    assert ran.status == 2
    assert "no history is recorded here" in ran.err
    assert "fix: turn it on with `lemming history on`" in ran.err


@pytest.mark.parametrize(
    "words", [["show", "1"], ["diff", "1", "now"], ["fork", "--at", "1", "../fork"]], ids=lambda words: words[0]
)
def test_without_a_history_the_journals_tell_it_and_the_command_says_so(
    base: Path, lemming: Lemming, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    make_org(base, resume("ada"), org={"durability": "off"})
    monkeypatch.chdir(base)
    ran = lemming(*words)
    assert (ran.status, "no tick has run yet" in ran.err) == (2, True)
    lemming("run-once", "-q")
    ran = lemming(*words)
    assert (ran.status, "from the journals" in ran.err) == (0, True)


def test_the_history_is_turned_on_and_off_and_nothing_else_is_changed(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"), org={"x-note": "mine", "tick_interval_s": 5})
    assert "every tick with changes is committed" in lemming("history", "on").err
    assert json.loads((base / "config/org.json").read_text()) == {
        "x-note": "mine",
        "tick_interval_s": 5,
        "history": "git",
    }
    lemming("run-once", "-q")
    assert len(lemming("history", "--json").objects) == 2
    assert lemming("history", "off", "--json").objects[0]["history"] == "off"
    lemming("run-once", "-q")
    assert len(lemming("history", "--json").objects) == 2


def test_without_git_the_history_cannot_be_turned_on(
    base: Path, lemming: Lemming, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_org(base, resume("ada"))
    monkeypatch.setenv("PATH", str(base))
    ran = lemming("history", "on")
    assert ran.status == 7
    assert "error[LMG-106]: git must be installed" in ran.err
    assert not (base / "config/org.json").exists()


def test_history_lists_commits_oldest_first(past: Path, lemming: Lemming) -> None:
    lines = lemming("history").out.splitlines()
    assert [line.split("  ")[2] for line in lines[1:]] == [
        "before tick 1: the history begins",
        "tick 1: 1 done",
        "tick 2: 2 done",
        "tick 3: 1 done",
    ]
    assert [commit["tick"] for commit in lemming("history", "bob", "--json").objects] == [None, 2]
    assert [commit["tick"] for commit in lemming("history", "-n", "2", "--json").objects] == [2, 3]
    assert lemming("history", "bbo").status == 2


def test_show_tells_files_and_text_without_steering_the_terminal(past: Path, lemming: Lemming) -> None:
    shown = lemming("show", "2").out
    assert shown.startswith("tick 2: 2 done  ")
    assert '+    "text": "' in shown
    assert "\x1b" not in shown
    stat = lemming("show", "2", "bob", "--stat").out.splitlines()[1:]
    assert [line.split()[0] for line in stat] == ["added", "added"]
    plain = lemming("show", "2", "--json").objects[0]
    assert plain["commit"]["agents"] == ["ada", "bob"]
    assert len(plain["files"]) == 5
    assert plain["diff"].startswith("diff --git")


def test_diff_compares_ticks_and_what_is_on_disk(past: Path, lemming: Lemming) -> None:
    fs.write_atomic(past, "shared/new.txt", b"new\n")
    files = lemming("diff", "2", "now", "--json").objects[0]["files"]
    assert {"path": "shared/new.txt", "change": "added", "added": 1, "removed": 0} in files
    assert len(files) == 4
    assert lemming("diff", "2", "3", "bob").out == "no file differs\n"
    assert "-new" in lemming("diff", "now", "3").out


def test_fork_tells_how_to_go_on(past: Path, tmp_path: Path, lemming: Lemming) -> None:
    place = str(tmp_path / "fork")
    ran = lemming("fork", "--at", "2", place, "--set", "agents/ada/resume.json:/schedule=daily")
    assert (ran.status, ran.out) == (0, f"{place}\n")
    assert f"`lemming -C {place} run-once` runs tick 3" in ran.err
    assert "ada: agents/ada/resume.json" in ran.err
    again = lemming("fork", "--at", "2", place)
    assert again.status == 2
    assert "expected an empty or a new folder" in again.err


def test_rewind_shows_first_and_does_it_with_yes(past: Path, lemming: Lemming) -> None:
    ran = lemming("rewind", "--to", "1")
    assert ran.status == 0
    assert ran.err.endswith("nothing has changed; to rewind: `lemming rewind --to 1 --yes`\n")
    assert lemming("rewind", "--to", "1", "--json").objects[0]["is_done"] is False
    assert load_tick(past) == 4
    done = lemming("rewind", "--to", "1", "--yes", "--json")
    assert done.status == 0
    assert done.objects[0]["journals"] == [2, 3]
    assert load_tick(past) == 2
    assert lemming("run-once", "-q").status == 0


def test_rewind_waits_for_no_engine(past: Path, lemming: Lemming) -> None:
    with open_org(past, command="run-forever"):
        ran = lemming("rewind", "--to", "1", "--yes")
    assert ran.status == 4
    assert "another engine is running here" in ran.err
    assert load_tick(past) == 4


def test_a_git_that_fails_is_told_and_does_not_fail_the_tick(
    past: Path, lemming: Lemming, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(past))
        ran = lemming("run-once", "-q")
    assert ran.status == 0
    assert ran.err.count("warning: the history commit failed: git must be installed") == 1


def test_doctor_looks_at_git_when_the_history_is_on(
    past: Path, lemming: Lemming, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finding() -> dict[str, str]:
        return next(line for line in lemming("doctor", "--json").objects if line["about"] == "history")

    assert finding()["level"] == "ok"
    monkeypatch.setenv("PATH", str(past))
    assert finding()["level"] == "fail"
    lemming("history", "off")
    assert finding()["level"] == "ok"
