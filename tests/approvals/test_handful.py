"""One turn asks a person a handful of things; the rest has to wait, and count for nobody's limit."""

from __future__ import annotations

from pathlib import Path

import pytest
from approvals_org import ASK, Ring, finished, lemming, make, requests, ring, tick

from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.kernel.messages import DECISIONS_FROM, entry_id
from lemming.libraries.outbox_files import write_person_entry
from lemming.obligations.waiting_items import list_person_inbox
from lemming.testing import say


def test_one_turn_asks_a_handful_and_the_rest_has_to_wait(tmp_path: Path) -> None:
    base = make(tmp_path, *(ring(str(number)) for number in range(9)))
    tick(base)
    assert [outcome for outcome, _ in finished(base, 1)] == ["pending"] * 5 + ["deferred"] * 4
    assert "asks persons to approve 5 things already" in finished(base, 1)[5][1]
    assert len(requests(base)) == 5
    assert [it.turns for it in replay_ticks(base, [1])] == [1]
    for request in requests(base):
        lemming(base, "approve", request.id)
    tick(base)
    assert Ring.rung == list("01234")


def test_of_entries_one_turn_asks_a_handful_too(tmp_path: Path) -> None:
    reports = say("", outbox_entries=[{"kind": "report", "payload": {"text": str(n)}} for n in range(4)])
    gates = [{"at": "out", "when": {"field": "kind", "op": "is", "value": "report"}, "then": "ask"}, ASK]
    reply = {**reports, "tool_calls": [ring()]}
    script = [{"tick": 1, "step": 0, "reply": reply}, {"reply": say("seen")}]
    base = make(tmp_path, gates=gates, script=script, turn={"max_approvals": 3})
    tick(base)
    assert [it.payload["call"]["tool"] for it in requests(base)] == ["publish"] * 3 + ["ring"]


def test_all_that_wait_are_denied_together_of_a_tool_or_an_agent_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write = {"tool": "file_write", "args": {"path": "a.txt", "content": "a"}}
    base = make(tmp_path, ring("a"), ring("b"), write)
    tick(base)
    capsys.readouterr()
    assert lemming(base, "deny") == 2
    assert lemming(base, "deny", "1/ada/0", "--all") == 2
    assert lemming(base, "deny", "1/ada/0", "--tool", "ring") == 2
    assert lemming(base, "deny", "--all", "--agent", "bob") == 2
    assert "no call by bob waits for approval" in capsys.readouterr().err
    assert lemming(base, "deny", "--all", "--tool", "ring", "--yes", "--reason", "too loud") == 0
    said = capsys.readouterr().out
    assert [line for line in said.splitlines() if "1/ada/0" in line or "1/ada/1" in line]
    assert [it.call["tool"] for it in list_person_inbox(base) if it.call] == ["file_write"]
    assert lemming(base, "deny", "--all", "--agent", "ada", "--yes", "--json") == 0
    assert list_person_inbox(base) == []
    tick(base)
    assert Ring.rung == []


def test_decisions_have_no_part_in_what_a_person_may_send_in_a_tick(tmp_path: Path) -> None:
    base = make(tmp_path, ring("a"), ring("b"))
    tick(base)
    for number in range(64):
        write_person_entry(base, "human", tick=2, kind="message", payload={"text": str(number)}, tags=[], created_at="")
    assert lemming(base, "send", "one more") != 0
    assert lemming(base, "approve", "1/ada/0") == 0
    assert lemming(base, "deny", "1/ada/1") == 0
    outbox = base / "agents/human/outbox"
    for number in (0, 1):
        assert (outbox / f"00000002_{entry_id(2, 'human', DECISIONS_FROM + number)}.json").exists()
    tick(base)
    assert Ring.rung == ["a"]
    assert [it.turns for it in replay_ticks(base, [1, 2])] == [1, 1]


def test_approve_says_what_else_has_to_be_decided_before_the_call_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = make(tmp_path, ring("a"), ring("b"))
    tick(base)
    first, second = requests(base)
    capsys.readouterr()
    assert lemming(base, "approve", first.id) == 0
    assert "it runs when these calls of the same turn are also decided" in (said := capsys.readouterr().err)
    assert f"{second.id} (human)" in said
    assert lemming(base, "approve", second.id) == 0
    assert capsys.readouterr().err == ""
    tick(base)
    assert Ring.rung == ["a", "b"]


def test_a_call_beside_the_answer_is_asked_about_all_the_same(tmp_path: Path) -> None:
    answered = {**say("it rings", kind="response"), "tool_calls": [ring()]}
    script = [{"tick": 1, "step": 0, "reply": answered}, {"reply": say("seen")}]
    base = make(tmp_path, script=script, schedule={"wake": "addressed"}, turn={"take": "one"})
    lemming(base, "send", "--to", "ada", "--kind", "request", "Ring, please.")
    tick(base)
    assert lemming(base, "approve", "1/ada/0") == 0
    tick(base)
    assert Ring.rung == ["once"]
    assert [it.turns for it in replay_ticks(base, [1, 2])] == [1, 1]
