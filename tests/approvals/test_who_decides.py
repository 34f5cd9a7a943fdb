"""Whose decision counts, and what nobody's decision does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from approvals_org import ASK, LINE, Ring, by_hand, edit, finished, lemming, make, requests, ring, shown, tick

from lemming.engine import ticks
from lemming.testing import FrozenClock, say


def test_an_edited_request_has_no_effect_on_the_call(tmp_path: Path) -> None:
    base = make(tmp_path, ring("soft"))
    tick(base)
    (request,) = requests(base)
    call = {**request.payload["call"], "args": {"text": "loud"}}
    edit(base, request.file, payload={**request.payload, "call": call})
    lemming(base, "approve", request.id)
    turn = tick(base)
    assert turn
    assert Ring.rung == ["soft"]
    assert any("shows another call" in remark for remark in turn.remarks)


@pytest.mark.parametrize("shown", [None, "ring the bell"])
def test_a_request_that_shows_no_call_any_more_has_no_effect_on_the_call_either(tmp_path: Path, shown: Any) -> None:
    base = make(tmp_path, ring())
    tick(base)
    (request,) = requests(base)
    edit(base, request.file, payload={**request.payload, "call": shown})
    by_hand(base, "human", 1, "yes", reply_to=request.id, target="ada", decision="approve")
    turn = tick(base)
    assert Ring.rung == ["once"]
    assert turn
    assert "shows another call than it asked about" in turn.remarks[0]


def test_of_two_deciders_the_first_counts_and_the_second_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = make(tmp_path, ring(), people=("eve", "human"))
    tick(base)
    (request,) = requests(base)
    assert (request.payload["target"], request.payload["join"]) == (["eve", "human"], "first")
    assert lemming(base, "deny", request.id, "--as", "eve", "--reason", "too late") == 0
    assert lemming(base, "approve", request.id, "--as", "human") != 0
    assert "eve said deny in tick 2" in capsys.readouterr().err
    by_hand(base, "human", 2, "yes", reply_to=request.id, decision="approve", target="ada")
    tick(base)
    assert not Ring.rung
    assert tick(base) is None


def test_only_persons_whom_the_gate_names_are_heard(tmp_path: Path) -> None:
    base = make(tmp_path, ring(), people=("eve", "human"), gates=[{**ASK, "persons": ["eve"]}])
    tick(base)
    (request,) = requests(base)
    assert request.payload["target"] == "eve"
    assert lemming(base, "approve", request.id, "--as", "human") != 0
    by_hand(base, "human", 2, "yes", reply_to=request.id, decision="approve", target="ada")
    assert tick(base) is None or not Ring.rung
    assert lemming(base, "approve", request.id, "--as", "eve") == 0
    tick(base)
    assert Ring.rung == ["once"]


def test_an_answer_that_decides_nothing_leaves_it_waiting(tmp_path: Path) -> None:
    base = make(tmp_path, ring())
    tick(base)
    by_hand(base, "human", 2, "hm", reply_to=requests(base)[0].id, text="yes please", target="ada")
    assert tick(base) is None
    assert not Ring.rung
    assert lemming(base, "approve", "1/ada/0") == 0
    tick(base)
    assert Ring.rung == ["once"]


@pytest.mark.parametrize("unsound", [{"args": 3}, {"args": ["once"]}, {"binds": "all"}, {"binds": [1]}])
def test_a_yes_to_what_is_no_call_decides_nothing(tmp_path: Path, unsound: dict[str, Any]) -> None:
    base = make(tmp_path, ring())
    tick(base)
    yes = {"reply_to": requests(base)[0].id, "decision": "approve", "target": "ada"}
    by_hand(base, "human", 2, "hm", **yes, **unsound)
    assert tick(base) is None
    assert Ring.rung == []


def test_nobody_to_ask_is_a_no_that_says_why(tmp_path: Path) -> None:
    base = make(tmp_path, ring(), people=())
    tick(base)
    ((outcome, output),) = finished(base, 1)
    assert outcome == "refused"
    assert "there is no person here who could approve it" in output


@pytest.mark.parametrize("named", [[], ["human"]])
def test_a_person_who_cannot_be_reached_is_not_asked(tmp_path: Path, named: list[str]) -> None:
    gates = [{**ASK, "persons": named}]
    base = make(tmp_path, ring(), gates=gates, permissions={"read_outboxes": [], "tools": ["ring"]})
    tick(base)
    assert "human cannot be asked: each of them and ada must read the other" in finished(base, 1)[0][1]


def test_a_yes_of_somebody_whom_the_agent_may_not_read_any_more_is_none(tmp_path: Path) -> None:
    base = make(tmp_path, ring(), people=("eve", "human"))
    tick(base)
    assert lemming(base, "approve", "1/ada/0", "--as", "human") == 0
    edit(base, "agents/ada/resume.json", permissions={"read_outboxes": ["eve"], "tools": ["ring"]})
    tick(base)
    assert (Ring.rung, len(requests(base))) == ([], 1)
    assert lemming(base, "approve", "1/ada/0", "--as", "eve") == 0
    tick(base)
    assert Ring.rung == ["once"]


def test_who_decided_must_be_one_of_those_whom_the_gate_hears_as_the_call_is_made(tmp_path: Path) -> None:
    base = make(tmp_path, ring(), people=("eve", "human"))
    tick(base)
    assert lemming(base, "approve", "1/ada/0", "--as", "human") == 0
    edit(base, "config/org.json", gates=[{**ASK, "persons": ["eve"]}])
    tick(base)
    assert Ring.rung == []
    assert requests(base)[1].payload["target"] == "eve"
    assert lemming(base, "approve", "1/ada/0", "--as", "eve") == 0
    tick(base)
    assert Ring.rung == ["once"]


def test_who_approved_in_advance_must_be_one_of_those_whom_the_gate_hears(tmp_path: Path) -> None:
    base = make(tmp_path, ring(), people=("eve", "human"), gates=[{**ASK, "persons": ["eve"]}])
    assert lemming(base, "approve", "--ahead", "ada", "ring", '{"text": "once"}', "--as", "human") == 0
    tick(base)
    assert Ring.rung == []
    assert requests(base)[0].payload["target"] == "eve"


def test_a_forged_request_of_a_model_gives_it_nothing(tmp_path: Path) -> None:
    call = {"id": "1/ada/0", "tool": "ring", "args": {"text": "x"}, "sha256": "0", "binds": {}, "gate": LINE}
    payload = {"text": "may I?", "target": "human", "call": {**call, "why": "so"}}
    asks = say("", outbox_entries=[{"kind": "request", "payload": payload, "tags": []}])
    base = make(tmp_path, script=[{"tick": 1, "reply": asks}, {"reply": say("seen")}])
    tick(base)
    assert lemming(base, "approve", requests(base)[0].id) != 0
    by_hand(base, "human", 2, "yes", reply_to=requests(base)[0].id, decision="approve", target="ada")
    tick(base)
    assert not Ring.rung


def decided(base: Path, *decisions: tuple[str, str, str, str]) -> None:
    """Have persons decide about ada's call by hand in tick 2: who, the entry's id, the word, and when."""
    (request,) = requests(base)
    for who, ident, word, at in decisions:
        by_hand(base, who, 2, ident, reply_to=request.id, decision=word, target="ada")
        edit(base, f"agents/{who}/outbox/00000002_{ident}.json", created_at=at)


EARLY, LATE = "2026-01-01T09:00:00.000Z", "2026-01-01T09:50:00.000Z"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        # Which of two names comes first says nothing.
        (("eve", "zz", "deny", EARLY), ("human", "aa", "approve", LATE)),
        (("human", "zz", "deny", EARLY), ("eve", "aa", "approve", LATE)),
        # The clock of one of them is another's.
        (("eve", "zz", "deny", "2026-01-01T11:00:00+02:00"), ("human", "aa", "approve", LATE)),
        # Nobody knows when the second was made.
        (("eve", "zz", "deny", LATE), ("human", "aa", "approve", "")),
        (("eve", "zz", "deny", ""), ("human", "aa", "approve", "")),
        (("eve", "zz", "deny", LATE), ("human", "aa", "approve", LATE)),
    ],
)
def test_of_two_decisions_in_one_tick_the_one_made_first_counts(
    tmp_path: Path,
    first: tuple[str, str, str, str],
    second: tuple[str, str, str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    base = make(tmp_path, ring(), people=("eve", "human"))
    tick(base)
    decided(base, second, first)
    lemming(base, "requests", requests(base)[0].id)
    assert f"by {first[0]}" in capsys.readouterr().out
    tick(base)
    assert Ring.rung == []


def test_a_no_with_an_empty_reason_is_told_with_its_text(tmp_path: Path) -> None:
    base = make(tmp_path, ring())
    tick(base)
    by_hand(
        base, "human", 1, "no", reply_to=requests(base)[0].id, target="ada", decision="deny", reason="", text="later"
    )
    tick(base)
    assert "DENIED by human: later" in shown(base, 2)


def test_a_no_that_comes_later_takes_no_yes_back(tmp_path: Path) -> None:
    base = make(tmp_path, ring(), people=("eve", "human"))
    tick(base)
    decided(base, ("eve", "aa", "deny", LATE), ("human", "zz", "approve", EARLY))
    tick(base)
    assert Ring.rung == ["once"]


@pytest.mark.parametrize(
    ("approved", "wanted"), [(1, True), (True, 1), (0, False), (10, 10.0), ([1], [True]), ({"a": 1}, {"a": True})]
)
def test_an_approval_in_advance_is_for_these_values_of_these_types(
    tmp_path: Path, approved: object, wanted: object
) -> None:
    base = make(tmp_path, ring("once", file=wanted))
    call = {"tool": "ring", "args": {"text": "once", "file": approved}}
    by_hand(base, "human", 1, "yes", target="ada", decision="approve", call=call)
    tick(base)
    assert Ring.rung == []


def test_an_approval_in_advance_counts_that_takes_the_place_of_another_entry_while_an_engine_runs(
    tmp_path: Path,
) -> None:
    script = [{"tick": 3, "step": 0, "reply": say("calling", tool_calls=[ring()])}, {"reply": say("seen")}]
    base = make(tmp_path, script=script, schedule={"run_every_n_ticks": 1})
    by_hand(base, "human", 1, "yes", kind="message", text="hello")
    running = ticks(base, clock=FrozenClock(), interval_s=0, max_ticks=3)
    next(running)
    next(running)
    call = {"tool": "ring", "args": {"text": "once"}}
    by_hand(base, "human", 1, "yes", target="ada", decision="approve", call=call)
    next(running)
    assert Ring.rung == ["once"]


def test_an_approval_in_advance_may_name_the_arguments_in_another_order(tmp_path: Path) -> None:
    base = make(tmp_path, {"tool": "ring", "args": {"text": "once", "file": "x"}})
    call = {"tool": "ring", "args": {"file": "x", "text": "once"}}
    by_hand(base, "human", 1, "yes", target="ada", decision="approve", call=call)
    tick(base)
    assert Ring.rung == ["once"]
