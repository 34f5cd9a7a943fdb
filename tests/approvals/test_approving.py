"""A call that needs approval waits for a person, and is made once, exactly as it was asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from approvals_org import (
    ASK,
    LINE,
    Ring,
    by_hand,
    edit,
    finished,
    kept_calls,
    lemming,
    make,
    requests,
    ring,
    shown,
    started,
    tick,
)

from lemming.capabilities.approvals.approval_questions import MAX_REQUEST_BYTES
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.kernel.base.jsontext import parse
from lemming.kernel.files import fs
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import say


def write(path: str, content: str) -> dict[str, Any]:
    return {"tool": "file_write", "args": {"path": path, "content": content}}


def test_a_call_waits_and_is_made_once_it_is_approved(tmp_path: Path) -> None:
    base = make(tmp_path, ring())
    turn = tick(base)
    assert turn
    assert (turn.status, turn.end) == ("waiting", "waits")
    assert finished(base, 1)[0][0] == "pending"
    (request,) = requests(base)
    payload = request.payload
    assert payload["text"] == f'ring: {{"text": "once"}}; asks because it is loud ({LINE})'
    assert payload["target"] == "human"
    assert payload["call"]["id"] == "1/ada/0"
    assert tick(base) is None
    assert not Ring.rung

    assert lemming(base, "approve", request.id) == 0
    turn = tick(base)
    assert turn
    assert turn.status == "done"
    assert turn.calls == 1
    assert Ring.rung == ["once"]
    assert finished(base, 3) == [("ok", "rang once")]
    (announced,) = started(base, 3)
    assert announced["kept"]["approvals"]["id"] == "1/ada/0"
    assert announced["kept"]["approvals"]["by"] == "human"
    assert announced["kept"]["approvals"]["entry"].startswith("human/")
    assert tick(base) is None
    assert Ring.rung == ["once"]
    assert kept_calls(base) == []
    assert [it.turns for it in replay_ticks(base, [1, 3])] == [1, 1]


def test_a_tick_says_what_was_decided(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = make(tmp_path, write("a.txt", "hello"))
    tick(base)
    (request,) = requests(base)
    lemming(base, "approve", request.id, "--edit", "content=bye")
    tick(base)
    capsys.readouterr()
    assert lemming(base, "tick") == 0
    saw = [
        line.split("tick ")[1] for line in capsys.readouterr().out.splitlines() if "  saw " in line and "tick" in line
    ]
    assert "1  wants to write a.txt (to human)" in saw
    assert "2  approved it, with path = a.txt, content = bye instead (to ada)" in saw


def test_what_needs_no_approval_in_the_same_reply_runs_and_results_come_together(tmp_path: Path) -> None:
    gates = [{**ASK, "tool": "ring"}]
    base = make(tmp_path, write("a.txt", "one"), ring(), write("b.txt", "two"), gates=gates)
    tick(base)
    assert [outcome for outcome, _ in finished(base, 1)] == ["ok", "pending", "ok"]
    assert (base / "agents/ada/workspace/b.txt").read_text() == "two"
    lemming(base, "approve", requests(base)[0].id)
    tick(base)
    assert "wrote 3 bytes to a.txt" in shown(base, 2)
    assert "WAITS" not in shown(base, 2)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["deny", "--reason", "not on a Friday"], "DENIED by human: not on a Friday"),
        (["answer", "the bell is broken"], "the bell is broken"),
        (["answer", "--refuse", "no"], "DENIED by human: no"),
        (["cancel", "never mind"], "DENIED by human: never mind"),
    ],
)
def test_a_no_and_an_answer_stand_in_the_place_of_the_call(tmp_path: Path, words: list[str], told: str) -> None:
    base = make(tmp_path, ring())
    tick(base)
    command, *rest = words
    assert lemming(base, command, requests(base)[0].id, *rest) == 0
    turn = tick(base)
    assert turn
    assert turn.status == "done"
    assert not Ring.rung
    assert kept_calls(base) == []
    assert told in shown(base, 2)


def test_expired_is_no(tmp_path: Path) -> None:
    base = make(tmp_path, ring(), gates=[{**ASK, "expires": 2}])
    tick(base)
    assert requests(base)[0].payload["deadline"] == 2
    assert tick(base) is None
    assert tick(base) is None
    assert tick(base) is not None
    assert "REFUSED: nobody answered by tick 3" in shown(base, 4)
    assert not Ring.rung
    assert lemming(base, "approve", requests(base)[0].id) != 0
    assert tick(base) is None
    assert not Ring.rung


@pytest.mark.parametrize(("dated", "counts"), [(3, True), (4, False)])
def test_a_decision_in_the_tick_of_its_deadline_counts_and_a_later_one_does_not(
    tmp_path: Path, dated: int, counts: bool
) -> None:
    base = make(tmp_path, ring(), gates=[{**ASK, "expires": 2}])
    for _ in range(3):
        tick(base)
    by_hand(base, "human", dated, "yes", reply_to=requests(base)[0].id, decision="approve", target="ada")
    tick(base)
    assert Ring.rung == (["once"] if counts else [])


def test_approval_is_for_the_arguments_that_a_person_edited(tmp_path: Path) -> None:
    base = make(tmp_path, ring("loud"))
    tick(base)
    assert lemming(base, "approve", "1/ada/0", "--edit", "volume=3") != 0
    assert lemming(base, "approve", "1/ada/0", "--edit", "text=soft") == 0
    tick(base)
    assert Ring.rung == ["soft"]


def test_a_file_that_changed_since_is_asked_about_again(tmp_path: Path) -> None:
    calls = [write("song.txt", "la"), {**ring(file="song.txt")}]
    base = make(tmp_path, *calls, gates=[{**ASK, "tool": "ring"}])
    tick(base)
    (request,) = requests(base)
    assert [*request.payload["call"]["binds"]] == ["agents/ada/workspace/song.txt"]
    lemming(base, "approve", request.id)
    (base / "agents/ada/workspace/song.txt").write_text("la la")
    turn = tick(base)
    assert turn
    assert (turn.status, turn.calls) == ("waiting", 0)
    assert not Ring.rung
    again = requests(base)[1]
    assert "agents/ada/workspace/song.txt changed since it was approved" in again.payload["text"]
    assert again.payload["call"]["id"] == "1/ada/1"
    assert tick(base) is None
    lemming(base, "approve", again.id)
    turn = tick(base)
    assert turn
    assert turn.status == "done"
    assert Ring.rung == ["once"]
    assert "wrote 2 bytes" in shown(base, 4)  # nobody was shown it before
    assert [it.turns for it in replay_ticks(base, [1, 2, 4])] == [1, 1, 1]


@pytest.mark.parametrize(("present", "before"), [(False, "/dev/null"), (True, "agents/ada/workspace/a.txt")])
def test_a_request_says_whether_the_file_is_new(tmp_path: Path, present: bool, before: str) -> None:
    base = make(tmp_path, write("a.txt", "two"))
    if present:
        fs.write_atomic(base, "agents/ada/workspace/a.txt", b"one")
    tick(base)
    head = f"--- {before}\n+++ agents/ada/workspace/a.txt\n"
    assert requests(base)[0].payload["call"]["diff"].startswith(head)


def test_the_request_shows_what_a_call_would_write(tmp_path: Path) -> None:
    calls = [write("a.txt", "one\nthree\n")]
    base = make(tmp_path, *calls)
    folder = base / "agents/ada/workspace"
    folder.mkdir()
    (folder / "a.txt").write_text("one\ntwo\n")
    tick(base)
    (request,) = requests(base)
    assert "-two\n+three" in request.payload["call"]["diff"]
    assert (folder / "a.txt").read_text() == "one\ntwo\n"
    lemming(base, "approve", request.id)
    tick(base)
    assert (folder / "a.txt").read_text() == "one\nthree\n"


def test_a_call_that_would_fail_is_not_asked_about(tmp_path: Path) -> None:
    wrong = {"tool": "ring", "args": {"volume": 3}}
    base = make(tmp_path, wrong, write("../../resume.json", "{}"))
    tick(base)
    assert [outcome for outcome, _ in finished(base, 1)] == ["invalid_args", "refused"]
    assert requests(base) == []


def test_identical_calls_that_wait_are_one_request(tmp_path: Path) -> None:
    base = make(tmp_path, ring(), ring(), ring("twice"))
    tick(base)
    assert [it.payload["call"]["id"] for it in requests(base)] == ["1/ada/0", "1/ada/2"]
    assert "waits for approval already (1/ada/0)" in finished(base, 1)[1][1]
    for request in requests(base):
        lemming(base, "approve", request.id)
    tick(base)
    assert Ring.rung == ["once", "twice"]


def test_one_grant_is_one_call(tmp_path: Path) -> None:
    script = [
        {"tick": 1, "reply": say("calling", tool_calls=[ring()])},
        {"tick": 2, "step": 0, "reply": say("again", tool_calls=[ring()])},
        {"reply": say("seen")},
    ]
    base = make(tmp_path, script=script)
    tick(base)
    lemming(base, "approve", requests(base)[0].id)
    turn = tick(base)
    assert turn
    assert turn.status == "waiting"
    assert Ring.rung == ["once"]
    assert [it.payload["call"]["id"] for it in requests(base)] == ["1/ada/0", "2/ada/1"]


def test_all_is_decided_before_the_turn_goes_on(tmp_path: Path) -> None:
    base = make(tmp_path, ring("a"), ring("b"))
    tick(base)
    first, second = requests(base)
    lemming(base, "approve", first.id)
    assert tick(base) is None
    assert not Ring.rung
    lemming(base, "deny", second.id)
    turn = tick(base)
    assert turn
    assert turn.status == "done"
    assert Ring.rung == ["a"]
    assert "DENIED by human" in shown(base, 3)


def test_approval_in_advance_is_used_once_for_exactly_that_call(tmp_path: Path) -> None:
    script = [{"tick": 1, "step": 0, "reply": say("calling", tool_calls=[ring("other"), ring()])}]
    script += [{"tick": 1, "reply": say("and again", tool_calls=[ring()])}, {"reply": say("seen")}]
    base = make(tmp_path, script=script)
    assert lemming(base, "approve", "--ahead", "ada", "ring", '{"text": "once"}') == 0
    tick(base)
    assert Ring.rung == ["once"]
    assert [it.payload["call"]["args"]["text"] for it in requests(base)] == ["other"]
    lemming(base, "deny", requests(base)[0].id)
    tick(base)
    assert Ring.rung == ["once"]


def test_approval_in_advance_is_struck_off_within_a_turn(tmp_path: Path) -> None:
    asked_for_again = [ring(), ring("between"), ring()]
    base = make(tmp_path, *asked_for_again, gates=[{**ASK, "tool": "ring"}])
    assert lemming(base, "approve", "--ahead", "ada", "ring", '{"text": "once"}') == 0
    tick(base)
    assert Ring.rung == ["once"]
    assert [outcome for outcome, _ in finished(base, 1)] == ["ok", "pending", "pending"]


def test_an_agent_that_always_wakes_waits_too(tmp_path: Path) -> None:
    base = make(tmp_path, ring(), schedule={"run_every_n_ticks": 1})
    tick(base)
    assert tick(base) is None
    assert tick(base) is None
    lemming(base, "approve", "1/ada/0")
    assert tick(base) is not None
    assert Ring.rung == ["once"]


def test_a_program_is_given_a_result_in_its_place_also_beside_a_notice(tmp_path: Path) -> None:
    lost = say("done", kind="response")
    lost["outbox_entries"].append({"kind": "message", "payload": {"text": "x", "target": "humann"}, "tags": []})
    rings = {"outbox_entries": [], "tool_calls": [ring("a"), ring("b")], "memory_updates": []}
    results = 'DENIED by human"}, {"tool": "ring", "args": {"text": "b"}, "success": true, "output": "rang b"'
    heard = {"contains": results, "reply": say("heard it", kind="response")}
    script = [{"tick": 1, "reply": rings}, {"tick": 2, "reply": lost}, heard, {"reply": say("", kind="response")}]
    base = make(tmp_path, script=script, schedule={"wake": "addressed"}, turn={"take": "one"})
    scripted = parse((base / "config/models.json").read_bytes())["scripted"]
    edit(base, "config/models.json", scripted={**scripted, "prompt": "values"})
    for text in ("one", "two"):
        lemming(base, "send", "--to", "ada", "--kind", "request", text)
    tick(base)
    tick(base)
    lemming(base, "deny", "1/ada/0")
    lemming(base, "approve", "1/ada/1")
    turn = tick(base)
    assert turn
    assert turn.status == "done"
    answers = [it for it in read_outbox_entries(base, "ada") if it.kind == "response"]
    assert answers[-1].payload["text"] == "heard it"
    assert "reached nobody" in shown(base, 3)


def test_a_request_that_waits_for_approval_is_answered_after_it(tmp_path: Path) -> None:
    script = [
        {"tick": 1, "step": 0, "reply": say("", outbox_entries=[], tool_calls=[ring()])},
        {"reply": say("it rang", kind="response")},
    ]
    base = make(tmp_path, script=script, schedule={"wake": "addressed"}, turn={"take": "one"})
    lemming(base, "send", "--to", "ada", "--kind", "request", "Ring, please.")
    tick(base)
    assert lemming(base, "approve", "1/ada/0") == 0
    turn = tick(base)
    assert turn
    assert turn.status == "done"
    assert Ring.rung == ["once"]

    assert [it.kind for it in read_outbox_entries(base, "ada")] == ["request", "response"]


def test_the_request_says_which_text_made_the_turn_suspect(tmp_path: Path) -> None:
    suspect = {"at": "call", "then": "ask", "when": {"field": "trust", "op": "is", "value": "outside"}}
    trust = {"rules": [{"from": "eve", "is": "outside"}]}
    base = make(tmp_path, ring(), people=("eve", "human"), gates=[suspect], org={"trust": trust})
    by_hand(base, "eve", 1, "hi", kind="message", text="ring it", target="ada")
    tick(base)
    (request,) = requests(base)
    assert "this turn was shown outside text: eve/00000001_hi (config/org.json" in request.payload["text"]
    assert lemming(base, "approve", request.id, "--as", "human") == 0
    tick(base)
    assert Ring.rung == ["once"]


def test_a_step_of_a_plan_waits_for_approval_too_and_results_keep_their_places(tmp_path: Path) -> None:
    steps = [{"name": name, "tool": "ring", "args": {"text": name}} for name in "ab"]
    may = {"read_outboxes": ["human"], "tools": ["ring"]}
    base = make(tmp_path, model={"key": "plan"}, permissions=may, schedule={"wake": "addressed"})
    models = json.loads((base / "config/models.json").read_text())
    edit(base, "config/models.json", **models, plan={"provider": "plan", "prompt": "values"})
    (base / "agents/ada/plan.json").write_text(json.dumps({"steps": [{"name": "both", "parallel": steps}]}))
    assert lemming(base, "send", "--to", "ada", "--kind", "request", "Ring.") == 0
    tick(base)
    first, second = requests(base)
    lemming(base, "deny", first.id, "--reason", "no")
    lemming(base, "approve", second.id)
    tick(base)
    assert Ring.rung == ["b"]
    answer = read_outbox_entries(base, "ada")[-1]
    assert answer.payload["text"] == 'the plan failed at "both": a: ring failed: DENIED by human: no'
    assert [it.turns for it in replay_ticks(base, [1, 2])] == [1, 1]


@pytest.mark.parametrize("changes", [False, True])
def test_arguments_that_a_person_writes_by_hand_let_no_file_change_that_was_asked_about(
    tmp_path: Path, changes: bool
) -> None:
    calls = [write("song.txt", "la"), {**ring(file="song.txt")}]
    base = make(tmp_path, *calls, gates=[{**ASK, "tool": "ring"}])
    tick(base)
    (request,) = requests(base)
    assert request.payload["call"]["binds"]
    if changes:
        (base / "agents/ada/workspace/song.txt").write_text("something else")
    word = {"decision": "approve", "args": {"text": "soft", "file": "song.txt"}}
    by_hand(base, "human", 1, "yes", reply_to=request.id, target="ada", **word)
    tick(base)
    assert Ring.rung == ([] if changes else ["soft"])
    assert len(requests(base)) == 1 + changes


def test_a_call_that_is_too_long_to_be_asked_about_is_not_made(tmp_path: Path) -> None:
    base = make(tmp_path, ring("x" * MAX_REQUEST_BYTES), script=None)
    tick(base)
    assert requests(base) == []
    assert finished(base, 1)[0][0] == "refused"
    assert "longer than the" in finished(base, 1)[0][1]
    assert not Ring.rung


def test_a_request_for_approval_that_is_taken_back_is_a_no(tmp_path: Path) -> None:
    base = make(tmp_path, ring())
    tick(base)
    (request,) = requests(base)
    by_hand(base, "ada", 1, "gone", kind="status", cancels=request.id, target="human", text="never mind")
    by_hand(base, "human", 2, "yes", reply_to=request.id, decision="approve", target="ada")
    for _ in range(3):
        tick(base)
    assert not Ring.rung
