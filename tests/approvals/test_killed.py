"""Killed at every step between asking and making, a call keeps its id, and is made at most once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from leave_org import Ring, by_hand, finished, kept_calls, lemming, make, requests, ring, started, tick

from lemming.testing import Crash, crash_at, say
from lemming.tools import ToolRegistry

pytestmark = pytest.mark.crash


@pytest.fixture(autouse=True)
def _bell() -> None:
    Ring.rung.clear()
    ToolRegistry.register(Ring())


def killed(base: Path, folder: Path) -> Iterator[Path]:
    """Yield copies of an organisation, each killed at another change of the disk in its next tick."""
    for number in count(1):
        copy = folder / str(number)
        shutil.copytree(base, copy)
        Ring.rung.clear()
        try:
            with crash_at(number):
                tick(copy)
        except Crash:
            yield copy
            shutil.rmtree(copy)
        else:
            assert number > 5
            return


def test_killed_while_it_is_asked_for(tmp_path: Path) -> None:
    base = make(tmp_path / "org", ring())
    for copy in killed(base, tmp_path):
        tick(copy)
        assert [it.payload["call"]["id"] for it in requests(copy)] == ["1/ada/0"]
        assert len(kept_calls(copy)) == 1
        assert not Ring.rung
        lemming(copy, "approve", "1/ada/0")
        tick(copy)
        assert Ring.rung == ["once"]


def test_killed_while_it_is_made(tmp_path: Path) -> None:
    base = make(tmp_path / "org", ring())
    tick(base)
    lemming(base, "approve", "1/ada/0")
    outcomes = set()
    for copy in killed(base, tmp_path):
        tick(copy)
        tick(copy)
        ((outcome, _),) = finished(copy, 2)
        outcomes.add(outcome)
        assert Ring.rung == ["once"] or (outcome == "interrupted" and len(Ring.rung) < 2)
        assert len(started(copy, 2)) == 1
        assert kept_calls(copy) == []
        assert len(requests(copy)) == 1
    assert outcomes == {"ok", "interrupted"}


def test_decided_while_the_engine_is_down(tmp_path: Path) -> None:
    base = make(tmp_path / "org", ring())
    for copy in killed(base, tmp_path):
        asked = requests(copy)
        if asked and kept_calls(copy):
            lemming(copy, "deny", asked[0].id)
            tick(copy)
            tick(copy)
            assert not Ring.rung
            assert kept_calls(copy) == []


def test_a_turn_that_fails_after_the_call_makes_it_no_second_time(tmp_path: Path) -> None:
    script = [{"tick": 1, "reply": {"outbox_entries": [], "tool_calls": [ring()], "memory_updates": []}}]
    base = make(tmp_path / "org", script=[*script, {"tick": 2, "reply": "no JSON"}, {"reply": say("")}])
    tick(base)
    lemming(base, "approve", "1/ada/0")
    turn = tick(base)
    assert turn
    assert turn.status == "failed"
    assert Ring.rung == ["once"]
    turn = tick(base)
    assert turn
    assert turn.status == "done"
    assert Ring.rung == ["once"]
    assert kept_calls(base) == []


def test_a_forged_journal_gives_no_leave(tmp_path: Path) -> None:
    base = make(tmp_path / "org", ring())
    tick(base)
    by_hand(base, "human", 2, "yes", reply_to=requests(base)[0].id, decision="approve", target="ada")
    for copy in killed(base, tmp_path):
        journal = copy / "logs/ticks/00000002.jsonl"
        if journal.exists() and b'"turn_started"' in journal.read_bytes() and not started(copy, 2):
            yes = copy / "agents/human/outbox/00000002_yes.json"
            yes.write_text(json.dumps({**json.loads(yes.read_text()), "payload": {"text": "what?"}}))
            turn = tick(copy)
            assert not Ring.rung
            assert turn is None or "leave for 1/ada/0 that nobody gives now" in turn.reason
