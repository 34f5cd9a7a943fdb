"""What a "yes" is for: one call, made once, however its turn ends; and nothing that it does not name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from approvals_org import ASK, Ring, edit, finished, kept_calls, lemming, make, requests, ring, shown, tick

from lemming.capabilities.gates.standing_approvals import add_standing_approval, require_gate_exists
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import parse
from lemming.testing import say

WRITE = {"tool": "file_write", "args": {"path": "note.txt", "content": "x\n"}}
NOTE = "agents/ada/workspace/note.txt"


def without_entries(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"outbox_entries": [], "tool_calls": [*calls], "memory_updates": []}


def test_a_yes_in_advance_is_used_up_by_a_call_outside_though_its_turn_fails(tmp_path: Path) -> None:
    script = [{"step": 0, "reply": without_entries(ring())}, {"tick": 1, "reply": "no JSON"}, {"reply": say("seen")}]
    often = {"run_every_n_ticks": 1}
    base = make(tmp_path, script=script, schedule=often, turn={"max_steps": 2, "repairs": 0})
    lemming(base, "approve", "--ahead", "ada", "ring", '{"text": "once"}')
    turn = tick(base)
    assert turn
    assert turn.status == "failed"
    assert Ring.rung == ["once"]
    tick(base)
    assert Ring.rung == ["once"]
    assert finished(base, 2)[0][0] == "pending"


def test_a_yes_in_advance_for_files_of_a_turn_that_fails_holds_for_the_next_one(tmp_path: Path) -> None:
    script = [{"step": 0, "reply": without_entries(WRITE)}, {"tick": 1, "reply": "no JSON"}, {"reply": say("seen")}]
    often = {"run_every_n_ticks": 1}
    base = make(tmp_path, script=script, schedule=often, turn={"max_steps": 2, "repairs": 0})
    lemming(base, "approve", "--ahead", "ada", "file_write", '{"path": "note.txt", "content": "x\\n"}')
    turn = tick(base)
    assert turn
    assert turn.status == "failed"
    assert not (base / NOTE).exists()
    tick(base)
    assert (base / NOTE).read_text() == "x\n"
    assert requests(base) == []


def test_a_yes_in_advance_is_used_up_by_a_file_that_is_written(tmp_path: Path) -> None:
    script = [{"step": 0, "reply": without_entries(WRITE)}, {"reply": say("seen")}]
    base = make(tmp_path, script=script, schedule={"run_every_n_ticks": 1}, turn={"max_steps": 2})
    lemming(base, "approve", "--ahead", "ada", "file_write", '{"path": "note.txt", "content": "x\\n"}')
    tick(base)
    (base / NOTE).unlink()
    tick(base)
    assert not (base / NOTE).exists()
    assert [outcome for outcome, _ in finished(base, 2)] == ["pending"]


def test_what_was_approved_is_made_by_the_next_turn_where_it_went_with_one_that_failed(tmp_path: Path) -> None:
    script = [{"tick": 1, "reply": without_entries(WRITE)}, {"tick": 2, "reply": "no JSON"}, {"reply": say("seen")}]
    base = make(tmp_path, script=script, turn={"repairs": 0})
    tick(base)
    lemming(base, "approve", "1/ada/0")
    turn = tick(base)
    assert turn
    assert turn.status == "failed"
    assert not (base / NOTE).exists()
    tick(base)
    assert (base / NOTE).read_text() == "x\n"
    assert kept_calls(base) == []


def test_after_a_turn_that_failed_the_next_is_told_what_was_made_and_what_was_not(tmp_path: Path) -> None:
    script = [
        {"tick": 1, "reply": without_entries(ring("a"), ring("b"))},
        {"tick": 2, "reply": "no JSON"},
        {"reply": say("seen")},
    ]
    base = make(tmp_path, script=script, turn={"repairs": 0})
    tick(base)
    lemming(base, "approve", "1/ada/0")
    lemming(base, "deny", "1/ada/1", "--reason", "too loud")
    tick(base)
    tick(base)
    told = shown(base, 3)
    assert told.count('"success": true, "output": "(it was made, as it was approved') == 1
    assert told.count("DENIED by human: too loud") == 1
    assert Ring.rung == ["a"]


@pytest.mark.parametrize(
    ("tools", "is_named"), [([], True), (["ring"], True), (["ri*"], True), (["shell"], False), ("!ring", False)]
)
def test_always_is_for_a_tool_that_the_gate_names(tmp_path: Path, tools: Any, is_named: bool) -> None:
    base = make(tmp_path, ring())
    tick(base)
    (call,) = kept_calls(base)
    gate = {key: value for key, value in ASK.items() if key != "tool"}
    edit(base, "config/org.json", gates=[{**gate, **({"tool": tools} if tools else {})}])
    if is_named:
        require_gate_exists(base, call, "ada")
        return
    with pytest.raises(UsageError, match="does not ask about ring any more"):
        require_gate_exists(base, call, "ada")


@pytest.mark.parametrize("gates", [[], [{"at": "out", "then": "ask"}], [{**ASK, "then": "block"}]])
def test_always_is_for_a_gate_that_still_asks_there(tmp_path: Path, gates: list[Any]) -> None:
    base = make(tmp_path, ring())
    tick(base)
    (call,) = kept_calls(base)
    edit(base, "config/org.json", gates=gates)
    with pytest.raises(UsageError, match="does not ask about ring any more"):
        require_gate_exists(base, call, "ada")


def test_always_twice_is_written_once(tmp_path: Path) -> None:
    base = make(tmp_path, ring())
    tick(base)
    (call,) = kept_calls(base)
    add_standing_approval(base, call, "ada")
    add_standing_approval(base, call, "ada")
    (gate,) = parse((base / "config/org.json").read_bytes())["gates"]
    assert gate["approved"] == {"ada": ["ring"]}
