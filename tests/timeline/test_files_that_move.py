"""Files that turns edited, added to, moved and took away: the past tells the same story as the folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lemming.cli import run
from lemming.engine import run_once
from lemming.git_history.history_reader import GitHistory
from lemming.journal_tools.fork import fork
from lemming.journal_tools.replay.replay_runtime import OUTSIDE
from lemming.journal_tools.replay.tick_replay import list_replayable_ticks, replay_into
from lemming.journal_tools.verify.file_verification import verify_org
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say, tree

BOTH = ["./workspace", "./shared"]
TICKS = 4


def call(tool: str, **args: Any) -> dict[str, Any]:
    return {"tool": tool, "args": args}


def made(base: Path, outside: Path, **org: Any) -> Path:
    """Make an organisation and run it: a file is written, moved on by another, edited, moved out."""
    outside.mkdir(exist_ok=True)
    grants = {"allow_read": BOTH, "allow_write": [*BOTH, str(outside)]}
    tools = ["file_write", "file_append", "file_edit", "file_move"]
    may = {"read_outboxes": [], "tools": tools, "file_access": grants}
    calls: dict[tuple[str, int], list[dict[str, Any]]] = {
        ("ada", 1): [call("file_write", path="shared/in/a.txt", content="one\n")],
        ("bob", 1): [call("file_move", path="shared/in/a.txt", to="shared/done/a.txt")],
        ("ada", 2): [call("file_append", path="shared/done/a.txt", content="two\n")],
        ("bob", 2): [call("file_edit", path="shared/done/a.txt", old="one", new="1")],
        ("ada", 3): [call("file_move", path="shared/done/a.txt", to=f"{outside}/a.txt")],
        ("bob", 3): [call("file_write", path="shared/done/a.txt", content="anew\n")],
        ("ada", 4): [call("file_move", path="shared/done/a.txt", to="b.txt")],
    }
    script = [
        {"agent": agent, "tick": tick, "reply": say(f"{tick}", tool_calls=asked)}
        for (agent, tick), asked in calls.items()
    ]
    make_org(
        base,
        resume("ada", permissions=may),
        resume("bob", permissions=may),
        org=org,
        script=[*script, {"reply": say("done")}],
    )
    for _ in range(TICKS):
        run_once(base, clock=FrozenClock())
    return base


@pytest.mark.parametrize("durability", ["off", "turn", "tick"])
def test_what_was_moved_is_where_it_was_moved_to(durability: str, tmp_path: Path) -> None:
    base = made(tmp_path / "org", tmp_path / "outside", durability=durability)
    assert (tmp_path / "outside/a.txt").read_text() == "1\ntwo\n"
    assert (base / "agents/ada/workspace/b.txt").read_text() == "anew\n"
    assert [*(base / "shared").rglob("*.txt")] == []


def test_nothing_is_found_missing(tmp_path: Path) -> None:
    base = made(tmp_path / "org", tmp_path / "outside")
    assert verify_org(base).findings == verify_org(base, newest=0).findings == ()
    assert tree(base / "shared") == {}


def test_the_record_names_what_was_taken_away_and_only_that(tmp_path: Path) -> None:
    base = made(tmp_path / "org", tmp_path / "outside")
    ends = [line for line in journal_lines(base, 1) if line["type"] == "turn_committed"]
    assert "removed" not in ends[0]
    assert ends[1]["removed"] == ["shared/in/a.txt"]
    effects = [line["effects"] for line in journal_lines(base, 1) if line["type"] == "tool_finished"]
    assert ["removes" in effect for each in effects for effect in each] == [False, False, True]


def test_a_replay_agrees_and_ends_in_the_same_files(tmp_path: Path) -> None:
    base, again = made(tmp_path / "org", tmp_path / "outside"), tmp_path / "again"
    replayed = [each.tick for each in replay_into(base, again, list_replayable_ticks(base, None))]
    assert replayed == [1, 2, 3, 4]
    assert tree(again, without=(".lemming", "logs", OUTSIDE)) == tree(base)


def test_a_history_made_afterwards_is_the_one_that_was_kept(tmp_path: Path) -> None:
    kept = made(tmp_path / "kept", tmp_path / "outside", history="git")
    bare = made(tmp_path / "bare", tmp_path / "outside")
    assert run(["-C", str(bare), "history", "on"]) == 0
    for tick in range(1, TICKS + 1):
        assert state(kept, tick, tmp_path / f"a{tick}") == state(bare, tick, tmp_path / f"b{tick}")


def state(base: Path, tick: int, folder: Path) -> dict[str, bytes]:
    history = GitHistory(base)
    fork(history, history.state_at_tick(tick), folder, [])
    return {**tree(folder / "shared"), **tree(folder / "agents/ada/workspace")}


def test_why_says_who_moved_a_file_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = made(tmp_path / "org", tmp_path / "outside")
    assert run(["-C", str(base), "why", "shared/in/a.txt"]) == 0
    assert "moved away by bob in tick 1" in capsys.readouterr().out
