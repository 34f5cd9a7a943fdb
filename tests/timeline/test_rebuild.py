"""A history made from the journals afterwards is the one that would have been kept."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from lemming.cli import run as run_command
from lemming.engine import run_once
from lemming.git_history.history_reader import GitHistory
from lemming.journal_tools.fork import fork
from lemming.kernel.base.errors import UsageError
from lemming.operations.open_org import open_org
from lemming.testing import FrozenClock, make_org, resume, say, tree

GRANTS = {
    "read_outboxes": ["*"],
    "tools": ["file_write"],
    "file_access": {"allow_read": ["./shared"], "allow_write": ["./workspace", "./shared"]},
}


def reply(tick: int) -> dict[str, Any]:
    calls = [{"tool": "file_write", "args": {"path": f"notes/{tick}.txt", "content": "x" * tick}}]
    calls += [{"tool": "file_write", "args": {"path": "shared/board.txt", "content": f"tick {tick}"}}]
    memory = [{"key": "count", "value": tick}]
    return {"agent": "ada", "tick": tick, "reply": say(f"ü {tick}", tool_calls=calls, memory_updates=memory)}


def make(base: Path, history: str) -> Path:
    script = [*map(reply, range(1, 8)), {"reply": say("hello")}]
    org = {"history": history, "retention_ticks": 2}
    late = resume("bob", schedule={"run_every_n_ticks": 3})
    return make_org(base, resume("ada", permissions=GRANTS), late, script=script, org=org)


def run(base: Path, ticks: int) -> None:
    for _ in range(ticks):
        run_once(base, clock=FrozenClock())


def state(base: Path, tick: int, folder: Path) -> dict[str, bytes]:
    history = GitHistory(base)
    fork(history, history.state_at_tick(tick), folder, [])
    return tree(folder)


@pytest.fixture
def rebuilt(base: Path) -> Path:
    """Seven ticks without a history, which is then turned on."""
    run(make(base, "off"), 7)
    assert run_command(["-C", str(base), "history", "on"]) == 0
    return base


@pytest.mark.long
def test_each_tick_is_as_it_would_have_been_kept(rebuilt: Path, tmp_path: Path) -> None:
    kept = make(tmp_path / "kept", "git")
    run(kept, 7)
    for tick in range(1, 8):
        there = state(kept, tick, tmp_path / f"kept-{tick}")
        here = state(rebuilt, tick, tmp_path / f"rebuilt-{tick}")
        assert here == there


def test_the_newest_state_is_what_is_on_disk_and_the_history_goes_on(rebuilt: Path) -> None:
    assert GitHistory(rebuilt).changes_between("7", "now").files == []
    run(rebuilt, 2)
    subjects = [commit.subject for commit in GitHistory(rebuilt).list_commits()]
    assert subjects[:2] == ["tick 9: 2 done", "tick 8: 1 done"]
    assert subjects[-1] == "before tick 1: the history begins"
    assert GitHistory(rebuilt).changes_between("8", "9").files


def test_an_edit_by_hand_after_the_last_tick_is_a_commit_by_hand(base: Path) -> None:
    run(make(base, "off"), 3)
    (base / "shared/board.txt").write_text("mine")
    run_command(["-C", str(base), "history", "on"])
    newest = GitHistory(base).list_commits()[0]
    assert newest.is_by_hand
    assert "shared/board.txt" in [file.path for file in GitHistory(base).diff_commit(newest).files]


@pytest.mark.long
def test_a_long_past_is_made_in_several_goes(base: Path) -> None:
    make_org(base, resume("ada"), org={"durability": "off"})
    run(base, 120)
    run_command(["-C", str(base), "history", "on"])
    history = GitHistory(base)
    assert len(history.list_branch_commits()) in (121, 122)
    files = [file.path for file in history.changes_between("100", "101").files]
    assert "agents/ada/turns.jsonl" in files


def test_beside_an_engine_the_history_begins_with_the_next_tick(base: Path) -> None:
    run(make(base, "off"), 2)
    with open_org(base):
        assert run_command(["-C", str(base), "history", "on"]) == 0
    with pytest.raises(UsageError, match="no history is recorded here"):
        GitHistory(base)
    run(base, 1)
    newest = GitHistory(base).list_commits()[0]
    assert newest.subject.startswith("tick 3")


def test_a_history_that_is_there_is_left_alone(base: Path) -> None:
    run(make(base, "git"), 3)
    before = [commit.id for commit in GitHistory(base).list_commits()]
    run_command(["-C", str(base), "history", "off"])
    run_command(["-C", str(base), "history", "on"])
    assert [commit.id for commit in GitHistory(base).list_commits()] == before


def test_without_journals_there_is_nothing_to_make(base: Path) -> None:
    run(make(base, "off"), 2)
    shutil.rmtree(base / "logs")
    assert run_command(["-C", str(base), "history", "on"]) == 0
    with pytest.raises(UsageError, match="no history is recorded here"):
        GitHistory(base)
