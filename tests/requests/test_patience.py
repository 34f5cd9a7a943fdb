"""Ticks follow each other at once only while somebody can act; what is waited for takes its own time."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from asked import ask, person
from waited import ADDRESSED, NOTHING, Json, called, calling, clocked, paid, run

from lemming.client.ask_client import AskOutcome, WorkProgress
from lemming.client.ask_client import ask as put
from lemming.journal_tools.replay.tick_replay import list_replayable_ticks, replay_into
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.journal.journal_file import journal_ticks
from lemming.kernel.tick.tick_counter import load_tick
from lemming.libraries.outbox_files import read_outbox_entries, write_person_entry
from lemming.obligations.org_requests import find_request, load_requests
from lemming.testing import FrozenClock, make_org, resume, say, tree


def planned(base: Path, wait: Json, **blocks: Any) -> Path:
    """Make an organisation whose `plan` waits before it asks bob, beside a `helper` who answers at once."""
    may = {"read_outboxes": ["*"], "file_access": {"allow_read": ["./shared"]}}
    make_org(
        base,
        person(),
        resume("plan", model={"key": "plan"}, permissions=may),
        *(resume(name, schedule=ADDRESSED) for name in ("bob", "helper")),
        script=[{"reply": say("here it is", kind="response")}],
        models={"human": {"provider": "human"}},
        **blocks,
    )
    steps = [{"name": "later", "wait": wait}, {"name": "work", "ask": "bob", "task": "go"}]
    fs.write_atomic(base, "agents/plan/plan.json", dump_pretty({"steps": steps}))
    return base


HOUR = {"time": "2026-01-01T01:00:00Z"}
FILE = {"file": "./shared/in.csv"}


@pytest.mark.parametrize("wait", [HOUR, FILE, {**FILE, "at_most": 50}])
def test_a_plan_that_waits_for_a_moment_or_a_file_hurries_nobody(base: Path, wait: Json) -> None:
    planned(base, wait)
    ask(base, "plan")
    assert [len(run(base)) for _ in range(3)] == [1, 1, 1]


def test_a_plan_that_waits_for_an_hour_while_somebody_asks(base: Path) -> None:
    planned(base, HOUR)
    clock, request = FrozenClock(), ask(base, "plan")
    run(base, clock)
    for number in range(5):
        before = load_tick(base)
        outcome = put(base, "helper", f"number {number}", clock=clock)
        assert outcome.answer == "here it is"
        assert load_tick(base) - before <= 2
    clock.advance(3600)
    assert paid(run(base, clock)) == ["bob"]
    assert load_requests(base).requests.find_matches(request.id)[0].end == "answered"


class Impatient:
    """Hears who is at work; when that is nobody, does what is waited for, or gives up."""

    def __init__(self, then: Any) -> None:
        self.then, self.stop = then, threading.Event()
        self.waits: list[str] = []

    def __call__(self, work: WorkProgress) -> None:
        if work.waits:
            self.waits.append(work.waits)
            self.then(self)


def put_to(base: Path, agent: str, then: Any, clock: FrozenClock | None = None) -> tuple[AskOutcome[Any], Impatient]:
    heard = Impatient(then)
    outcome = put(base, agent, "go", clock=clock or FrozenClock(), at_work=heard, stop=heard.stop)
    return outcome, heard


def test_ask_waits_for_the_file_of_a_plan_and_runs_no_tick_meanwhile(base: Path) -> None:
    planned(base, FILE)
    outcome, heard = put_to(base, "plan", lambda _: fs.write_atomic(base, "shared/in.csv", b"1"))
    assert (outcome.answer, heard.waits) == ("here it is", ["plan waits for ./shared/in.csv to be there"])
    assert load_tick(base) <= 5


def test_ask_waits_for_the_moment_of_a_plan_and_can_be_stopped(base: Path) -> None:
    planned(base, HOUR)
    outcome, heard = put_to(base, "plan", lambda it: it.stop.set())
    assert (outcome.why, heard.waits) == ("stopped", ["plan waits for 2026-01-01T01:00:00.000Z"])
    assert load_tick(base) == 2


def test_ask_says_what_it_does_not_wait_for(base: Path) -> None:
    planned(base, FILE)
    rare = resume("helper", schedule={**ADDRESSED, "run_every_n_ticks": 1000})
    fs.write_atomic(base, "agents/helper/resume.json", dump_pretty(rare))
    outcome = put(base, "helper", "go", clock=FrozenClock())
    assert (outcome.why, outcome.reason) == (
        "nothing_to_do",
        "helper is due in tick 1000 (run `lemming run-once --agent helper` to give it a turn now)",
    )
    assert load_tick(base) == 2


def test_ticks_in_which_nobody_is_due_go_by_and_count_for_no_person(base: Path, tmp_path: Path) -> None:
    gate = {"at": "call", "tool": "memory_write", "then": "ask", "persons": ["human"], "expires": 3}
    slow = {**ADDRESSED, "run_every_n_ticks": 5}
    make_org(
        base,
        person(),
        resume("ann", schedule=ADDRESSED, gates=[gate]),
        resume("slow", schedule=slow),
        script=[
            {"agent": "ann", "reply": calling("memory_write", key="x", value=1)},
            {"reply": say("done", kind="response")},
        ],
        models={"human": {"provider": "human"}},
    )
    ask(base, "ann")
    run(base)
    for _ in range(3):
        assert put(base, "slow", "well?", clock=FrozenClock()).answer == "done"
    assert load_tick(base) > 12
    approval = next(it for it in load_requests(base).requests if it.asker == "ann")
    assert approval.is_open
    list(clocked(base, 4))
    assert not load_requests(base).requests.by_identity[approval.identity].is_open
    assert list(replay_into(base, tmp_path / "again", list_replayable_ticks(base, None)))


def test_an_entry_in_review_is_asked_about_once_and_hurries_nobody(base: Path) -> None:
    gate = {"at": "in", "then": "ask", "when": {"field": "from", "op": "is", "value": "bob"}}
    make_org(
        base,
        person(),
        resume("bob", schedule=ADDRESSED),
        resume("ada", schedule=ADDRESSED, gates=[gate]),
        script=[{"reply": say("x")}],
        models={"human": {"provider": "human"}},
    )
    write_person_entry(
        base, "bob", tick=1, kind="message", payload={"text": "x", "target": "ada"}, tags=[], created_at="x"
    )
    assert len(run(base)) <= 2
    assert len(run(base)) == 1
    assert len([it for it in read_outbox_entries(base, "ada") if it.kind == "request"]) == 1


def led(base: Path, *more: Json) -> Path:
    """Make an organisation in which lead asks bob, and bob asks cyd, who only says that it will come."""
    soon = {**NOTHING, "outbox_entries": [{"kind": "status", "payload": {"text": "soon"}, "tags": []}]}
    given_up = {**NOTHING, "outbox_entries": [{"kind": "response", "payload": {"text": "so be it"}, "tags": []}]}
    return make_org(
        base,
        person(),
        resume("lead", schedule=ADDRESSED, team={"ask": ["bob"]}),
        resume("bob", schedule=ADDRESSED, team={"ask": ["cyd"]}),
        resume("cyd", schedule=ADDRESSED),
        script=[
            *more,
            {"agent": "lead", "contains": "CANCELLED", "reply": given_up},
            {"agent": "lead", "reply": calling("ask_bob", message="do it")},
            {"agent": "bob", "reply": calling("ask_cyd", message="do it")},
            {"agent": "cyd", "reply": soon},
        ],
        models={"human": {"provider": "human"}},
    )


def cancel(base: Path, id_: str, target: str) -> None:
    payload = {"cancels": id_, "target": target}
    write_person_entry(base, "human", tick=load_tick(base), kind="status", payload=payload, tags=[], created_at="x")


@pytest.mark.parametrize("readable", [True, False])
def test_what_was_asked_for_a_cancelled_request_costs_nothing_more(base: Path, readable: bool) -> None:
    led(base)
    if not readable:  # by who holds the children: the person who cancels is none of their business
        for name in ("bob", "cyd"):
            may = {"read_outboxes": ["lead", "bob", "cyd"]}
            plain = resume(name, schedule=ADDRESSED, permissions=may, team={"ask": ["cyd"]} if name == "bob" else None)
            fs.write_atomic(base, f"agents/{name}/resume.json", dump_pretty(plain))
    request = ask(base, "lead")
    assert "cyd" in paid([*clocked(base, 5)])
    cancel(base, request.id, "lead")
    assert paid([*clocked(base, 5)]) == []
    assert len(run(base)) == 1
    assert not load_requests(base).requests.unresolved_requests


def test_who_asked_is_told_of_a_child_that_a_person_cancelled(base: Path) -> None:
    led(base)
    request = ask(base, "lead")
    list(clocked(base, 5))
    (child,) = [it for it in read_outbox_entries(base, "lead") if it.kind == "request"]
    cancel(base, child.id, "bob")
    assert paid(run(base)) == ["lead"]
    assert load_requests(base).requests.find_matches(request.id)[0].answers[0].payload["text"] == "so be it"


def test_a_question_to_one_of_six_that_wake_always_costs_one_call(base: Path) -> None:
    names = ("ann", "bob", "cyd", "dan", "eve", "fay")
    answer = [{"reply": say("yes", kind="response")}]
    make_org(base, person(), *map(resume, names), script=answer, models={"human": {"provider": "human"}})
    outcome = put(base, "cyd", "well?", clock=FrozenClock())
    asked = [turn for name in names for turn in journal_ticks(base) if called(base, turn, name)]
    assert (outcome.answer, len(asked)) == ("yes", 1)
    assert sorted(set(paid([*clocked(base, 1)]))) == [*names]  # by the clock each has its turn, as ever


@pytest.mark.parametrize("wake", ["always", "changed"])
def test_a_lead_that_waits_takes_no_paid_turn(base: Path, wake: str) -> None:
    make_org(
        base,
        person(),
        resume("lead", schedule={"wake": wake}, team={"ask": ["human"]}),
        script=[{"reply": calling("ask_human", message="may I?")}],
        models={"human": {"provider": "human"}},
    )
    ask(base, "lead")
    assert paid([*clocked(base, 6)]) == ["lead"]


def at_once(base: Path, *questions: str) -> None:
    for question in questions:
        assert put(base, "helper", question, clock=FrozenClock()).answer == "here it is"


@pytest.mark.long
def test_ticks_run_for_others_count_for_no_person(base: Path, tmp_path: Path) -> None:
    gate = {"at": "call", "tool": "memory_write", "then": "ask", "persons": ["human"], "expires": 3}
    make_org(
        base,
        person(),
        *(resume(name, schedule=ADDRESSED, gates=[gate]) for name in ("ann", "zoe")),
        resume("helper", schedule=ADDRESSED),
        resume("slow"),
        script=[
            {"agent": "helper", "reply": say("here it is", kind="response")},
            {"agent": "slow", "reply": NOTHING},
            {"contains": "memory_write", "reply": say("done", kind="response")},
            {"reply": calling("memory_write", key="x", value=1)},
        ],
        models={"human": {"provider": "human"}},
    )
    asked = [ask(base, name) for name in ("ann", "zoe")]
    run(base)
    first, second = (it for it in load_requests(base).requests.unresolved_requests if it.asker != "human")
    left = (first.deadline or 0) - load_tick(base)
    at_once(base, "a")
    shown = find_request(load_requests(base).requests, first.identity).deadline
    assert shown == load_tick(base) + left  # also before the tick that it was first to end in
    at_once(base, *"bcdefgh")
    list(clocked(base, 1))
    at_once(base, *"ijkl")
    assert find_request(load_requests(base).requests, first.identity).is_open
    write_person_entry(
        base,
        "human",
        tick=load_tick(base),
        kind="response",
        payload={"reply_to": first.id, "target": "ann", "decision": "approve"},
        tags=[],
        created_at="x",
    )
    assert paid(run(base)) == ["ann", "slow"]
    list(clocked(base, 3))  # by the clock it is over
    of = load_requests(base).requests.by_identity
    assert (of[first.identity].end, of[second.identity].end) == ("answered", "expired")
    assert all(of[it.identity].end == "answered" for it in asked)
    again = tmp_path / "again"
    assert list(replay_into(base, again, list_replayable_ticks(base, None)))
    told = {**tree(base)}
    del told["agents/human/turns.jsonl"]  # what a person has read
    assert tree(again) == told


def test_ask_says_why_the_holder_fails_though_its_turn_was_for_a_request_before(base: Path) -> None:
    gate = {"at": "spend", "then": "stop", "dollars": 1, "per": "agent"}
    make_org(
        base,
        person(),
        resume("ada", schedule=ADDRESSED),
        org={"gates": [gate]},
        models={"human": {"provider": "human"}},
    )
    outcomes = [put(base, "ada", text) for text in ("first", "second")]
    assert [it.why for it in outcomes] == ["failing", "failing"]
    assert 'the price of model "scripted" is unknown' in outcomes[1].unanswered_reason
    assert outcomes[1].error == outcomes[0].error
