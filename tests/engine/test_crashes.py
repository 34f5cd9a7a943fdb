"""The process dies at any change of the disk; the next run comes to the same files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lemming.engine import load_tick, run_once
from lemming.errors import CorruptState
from lemming.journal import read_journal
from lemming.messages import read_outbox_entries
from lemming.testing import Crash, FrozenClock, crash_at, make_org, resume, say, tree

TICKS = 3
# `make crash` tries every point; the ordinary run tries every fifth.
STRIDE = 1 if os.environ.get("LEMMING_CRASH_POINTS") == "all" else 5
pytestmark = pytest.mark.crash


def writer(text: str, **more: Any) -> dict[str, Any]:
    return say(text, memory_updates=[{"key": "last", "value": text}], **more)


def plain_org(base: Path) -> None:
    make_org(
        base,
        resume("ada"),
        resume("bob", permissions={"read_outboxes": ["ada"]}),
        resume("cyd", schedule={"run_every_n_ticks": 2, "wake": "changed"}),
        script=[{"reply": writer("news")}],
    )


def busy_org(base: Path) -> None:
    write = {"tool": "file_write", "args": {"path": "notes/today.txt", "content": "line\n"}}
    read = {"tool": "file_read", "args": {"path": "notes/today.txt"}}
    make_org(
        base,
        resume(
            "ada",
            permissions={"read_outboxes": ["*"], "tools": ["file_write", "file_read"]},
            turn={"max_steps": 2},
        ),
        resume("bob", credits={"max_credits": 2}),
        resume("cyd"),
        {"name": "odd"},
        org={"retention_ticks": 1},
        script=[
            {"agent": "ada", "step": 0, "reply": say("writing", tool_calls=[write, read])},
            {"agent": "cyd", "step": 0, "reply": "not the contract"},
            {"agent": "cyd", "tick": 2, "reply": "still not"},
            {"reply": writer("news")},
        ],
    )


@pytest.fixture(params=[plain_org, busy_org], ids=["plain", "busy"])
def make(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    made: Callable[[Path], None] = request.param
    return made


def run(base: Path, asked: list[str]) -> None:
    def count(event: dict[str, Any]) -> None:
        if event["type"] == "model_asked":
            asked.append(event["agent"])

    while load_tick(base) <= TICKS:
        run_once(base, clock=FrozenClock(), notify=count)


def test_a_crash_at_any_change_of_the_disk_changes_nothing(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    asked: list[str] = []
    make(tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "start")
    run(tmp_path / "whole", asked)
    expected, ideal = tree(tmp_path / "whole"), len(asked)
    number, uncrashed = 1 - STRIDE, False
    while not uncrashed:
        number += STRIDE
        base = tmp_path / "crashed"
        shutil.copytree(tmp_path / "start", base)
        asked = []
        try:
            with crash_at(number) as changes:
                run(base, asked)
            uncrashed = True
        except Crash:
            pass
        run(base, asked)
        leftovers = {path for path in tree(base) if path.endswith(".tmp")}
        found = {path: content for path, content in tree(base).items() if path not in leftovers}
        assert found == expected, f"crash {number}, after {changes[-1:]}"
        assert len(asked) <= ideal + 1, f"crash {number} paid {len(asked)} calls instead of {ideal}"
        shutil.rmtree(base)
    assert number > 60


@pytest.mark.parametrize("kept", [0, 1, 40, -1])
def test_a_torn_last_line_is_dropped_and_its_turn_goes_on(base: Path, kept: int) -> None:
    plain_org(base)
    with pytest.raises(Crash), crash_at(14):
        run_once(base, clock=FrozenClock())
    journal = base / "logs/ticks/00000001.jsonl"
    whole = journal.read_bytes()
    lines = whole.splitlines(keepends=True)
    torn = lines[-1][:kept] if kept else b""
    journal.write_bytes(b"".join(lines[:-1]) + torn)
    run_once(base, clock=FrozenClock())
    assert [entry.tick for entry in read_outbox_entries(base, "ada")] == [1]
    assert read_journal(base, 1)[-1]["type"] == "tick_committed"


def test_damage_in_the_middle_of_a_journal_stops_the_engine_and_names_the_line(base: Path) -> None:
    plain_org(base)
    with pytest.raises(Crash), crash_at(14):
        run_once(base, clock=FrozenClock())
    journal = base / "logs/ticks/00000001.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(lines[0] + lines[1].replace(b"ada", b"eve", 1) + b"".join(lines[2:]))
    before = tree(base, without=())
    with pytest.raises(CorruptState, match=r"00000001\.jsonl:2"):
        run_once(base)
    assert {k: v for k, v in tree(base, without=()).items() if k != ".lemming/lock"} == {
        k: v for k, v in before.items() if k != ".lemming/lock"
    }


def test_a_turn_that_keeps_killing_the_engine_is_given_up_so_that_the_tick_can_end(base: Path) -> None:
    plain_org(base)

    def die(event: dict[str, Any]) -> None:
        if event["type"] == "model_asked" and event["agent"] == "bob":
            raise Crash

    for _ in range(3):
        with pytest.raises(Crash):
            run_once(base, notify=die)
    report = run_once(base, notify=die)
    by_name = {turn.agent: turn for turn in report.turns}
    assert by_name["bob"].status == "failed"
    assert "3 times" in by_name["bob"].reason
    assert by_name["ada"].status == "done"
    assert load_tick(base) == 2


def test_a_tool_with_an_outside_effect_is_not_run_again_after_a_crash(base: Path) -> None:
    from lemming.tools import Tool, ToolRegistry, ToolResult

    class Ring(Tool):
        name = "ring"
        description = "Rings a bell."
        rung = 0

        def execute(self, agent_name: str, base_path: Path, **kwargs: Any) -> ToolResult:
            Ring.rung += 1
            raise Crash

    ToolRegistry.register(Ring())
    reply = say("ringing", tool_calls=[{"tool": "ring", "args": {}}])
    make_org(base, resume("ada", permissions={"tools": ["ring"]}), script=[{"reply": reply}])
    with pytest.raises(Crash):
        run_once(base)
    (turn,) = run_once(base).turns
    assert Ring.rung == 1
    assert turn.tools == [{"tool": "ring", "success": False}]
    finished = [r for r in read_journal(base, 1) if r["type"] == "tool_finished"]
    assert finished[0]["output"].startswith("INTERRUPTED")
