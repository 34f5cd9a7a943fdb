"""What the next run makes of what an interrupted one left: a torn line, damage, a turn that kills."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from asked_corpus import refused
from corpus import plain

from lemming.engine import load_tick, run_once
from lemming.kernel.base.errors import CorruptState
from lemming.kernel.journal.engine_events import Event, ModelAsked
from lemming.kernel.journal.journal_records import TurnCommitted
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import Crash, FrozenClock, journal_lines, make_org, resume, say, tree

pytestmark = pytest.mark.crash


def crash_in_the_turn_of(agent: str, base: Path) -> None:
    """Run a tick and end it as this agent's model is asked."""

    def die(event: Event) -> None:
        if isinstance(event, ModelAsked) and event.agent == agent:
            raise Crash

    with pytest.raises(Crash):
        run_once(base, clock=FrozenClock(), notify=die)


@pytest.mark.parametrize("kept", [0, 1, 40, -1])
def test_a_torn_last_line_is_dropped_and_its_turn_goes_on(base: Path, kept: int) -> None:
    plain(base, {})
    crash_in_the_turn_of("bob", base)
    journal = base / "logs/ticks/00000001.jsonl"
    whole = journal.read_bytes()
    lines = whole.splitlines(keepends=True)
    torn = lines[-1][:kept] if kept else b""
    journal.write_bytes(b"".join(lines[:-1]) + torn)
    run_once(base, clock=FrozenClock())
    assert [entry.tick for entry in read_outbox_entries(base, "ada")] == [1]
    assert journal_lines(base, 1)[-1]["type"] == "tick_committed"


def test_damage_in_the_middle_of_a_journal_stops_the_engine_and_names_the_line(base: Path) -> None:
    plain(base, {})
    crash_in_the_turn_of("bob", base)
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
    plain(base, {})
    for _ in range(3):
        crash_in_the_turn_of("bob", base)
    report = run_once(base)
    by_name = {turn.agent: turn for turn in report.turns}
    assert by_name["bob"].status == "failed"
    assert "3 times" in by_name["bob"].reason
    assert by_name["ada"].status == "done"
    assert load_tick(base) == 2


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_turn_that_failed_has_answered_its_request_after_a_crash_too(base: Path, is_lost: bool) -> None:
    refused(base, {})
    run_once(base, clock=FrozenClock())

    def die(event: Event) -> None:
        if isinstance(event, TurnCommitted) and event.report.agent == "bob":
            raise Crash

    with pytest.raises(Crash):
        run_once(base, clock=FrozenClock(), notify=die)
    (answer,) = read_outbox_entries(base, "bob")
    if is_lost:  # with the power
        (base / answer.file).unlink()
    turns = {turn.agent: turn for turn in run_once(base, clock=FrozenClock()).turns}
    assert turns["bob"].status == "failed"
    assert read_outbox_entries(base, "bob") == [answer]
    assert turns["desk"].status == "done", "it waited for the answer"


def test_a_tool_with_an_outside_effect_is_not_run_again_after_a_crash(base: Path) -> None:
    from lemming.kernel.tools import Tool, ToolRegistry, ToolResult

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
    (use,) = turn.tools
    assert (use["success"], use["outcome"], use["code"]) == (False, "interrupted", "LMG-606")
    finished = [r for r in journal_lines(base, 1) if r["type"] == "tool_finished"]
    assert finished[0]["output"].startswith("INTERRUPTED")
