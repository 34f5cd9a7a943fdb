"""What is spent below a request never exceeds its budget: who works on it, and whether the engine dies."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from asked import answers, ask, org_of, said, tick
from haphazard import BUDGET, TEAM, Bank, haphazard, spend
from test_taking import ONE, entry, reply
from test_team import QUIET

from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.kernel.journal.journal_file import journal_ticks
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.llm.retrying_provider import RetryingLLMProvider
from lemming.libraries.outbox_files import write_person_entry
from lemming.testing import resume, say, tree

EVERYTHING = os.environ.get("LEMMING_CRASH_POINTS") == "all"
SEEDS = range(100) if EVERYTHING else (21, 49)
ORGS: tuple[dict[str, Any], ...] = (
    {},
    {"at_once": 4, "durability": "tick"},
    {"at_once": 2, "clean": True, "requests": 3},
)
ASKED: dict[str, dict[str, Any]] = {
    "one": {},
    "one with a deadline": {"deadline": 6},
    "several": {"whom": [*TEAM]},
    "the first of several": {"whom": [*TEAM], "join": "first", "within": 3},
    "two of several": {"whom": [*TEAM], "join": 2},
}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RetryingLLMProvider, "_pause_s", lambda *_: 0.0)


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("org", ORGS, ids=str)
def test_the_bill_of_a_request_is_never_above_its_budget(base: Path, seed: int, org: dict[str, Any]) -> None:
    haphazard(base, **org)
    spend(base, seed)
    assert 0 < Bank.bill <= BUDGET


@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("asked", ASKED.values(), ids=[*ASKED])
def test_whoever_is_asked_the_bill_is_never_above_the_budget(base: Path, seed: int, asked: dict[str, Any]) -> None:
    haphazard(base)
    spend(base, seed, **asked)
    assert 0 < Bank.bill <= BUDGET


@pytest.mark.parametrize("seed", SEEDS)
def test_a_budget_in_tokens_holds_as_well(base: Path, seed: int) -> None:
    haphazard(base)
    spend(base, seed, budget="90000 tokens")
    assert 0 < Bank.tokens <= 90_000


def test_what_is_spent_does_not_depend_on_how_many_turns_are_taken_at_once(tmp_path: Path) -> None:
    trees = []
    for at_once in (1, 4):
        spend(haphazard(tmp_path / str(at_once), at_once=at_once), 49)
        found = tree(tmp_path / str(at_once))
        trees.append({path: raw for path, raw in found.items() if "/outbox/" in path or "turns.jsonl" in path})
    assert trees[0] == trees[1]


def test_turns_with_a_budget_are_replayed(base: Path) -> None:
    spend(haphazard(base), 49)
    ticks = journal_ticks(base)
    assert len([*replay_ticks(base, ticks)]) == len(ticks)


def test_those_who_are_asked_together_share_the_budget(tmp_path: Path) -> None:
    working = [{"reply": reply(entry("status", "working on it"))}]
    org = org_of(tmp_path, *(resume(name, **QUIET, **ONE) for name in TEAM), script=working)
    ask(org, [*TEAM], budget=6)
    for _ in range(8):
        tick(org)
    assert [read_state(org, name).credits for name in TEAM] == [2.0, 2.0, 2.0]


def test_of_several_who_begins_later_may_spend_what_the_first_has_left(tmp_path: Path) -> None:
    script = [
        {"agent": "zoe", "reply": reply(entry("response", "I cannot", status="failed"))},
        {"agent": "bob", "reply": reply(entry("status", "working on it"))},
    ]
    org = org_of(tmp_path, *(resume(name, **QUIET, **ONE) for name in ("zoe", "bob")), script=script)
    ask(org, ["zoe", "bob"], budget=3, join="first", within=1)
    for _ in range(12):
        tick(org)
    assert [read_state(org, name).credits for name in ("zoe", "bob")] == [1.0, 2.0]


def test_of_several_who_begins_later_may_spend_nothing_while_the_first_is_at_work(tmp_path: Path) -> None:
    team = [resume(name, **QUIET, **ONE) for name in ("zoe", "bob")]
    org = org_of(tmp_path, *team, script=[{"reply": reply(entry("status", "busy"))}])
    ask(org, ["zoe", "bob"], budget=3, join="first", within=1)
    for _ in range(4):
        tick(org)
    assert sorted(read_state(org, name).credits for name in ("zoe", "bob")) == [0, 3]


def test_who_was_asked_for_nothing_costs_nothing_of_the_budget(tmp_path: Path) -> None:
    asks = {"text": "how many?", "target": ["bob", "cat"], "join": "first", "budget": 4}
    script = [
        {"agent": "ada", "tick": 1, "reply": reply({"kind": "request", "payload": asks, "tags": []})},
        {"reply": say("three", kind="response")},
    ]
    team = [resume(name, **QUIET, **ONE) for name in ("ada", "bob", "cat")]
    org = org_of(tmp_path, *team, script=script)
    request = ask(org, "ada", budget=8)
    for _ in range(4):
        tick(org)
    assert answers(org, "ada")[request.id]["spent"] == 3


def test_several_who_are_asked_without_a_budget_have_none(tmp_path: Path) -> None:
    done = [{"reply": say("done", kind="response")}]
    org = org_of(tmp_path, *(resume(name, **QUIET, **ONE) for name in TEAM), script=done)
    ask(org, [*TEAM], budget=None)
    assert [turn.status for turn in tick(org).turns if turn.agent in TEAM] == ["done"] * len(TEAM)


def test_what_nobody_spent_before_a_deadline_may_be_spent_after_it(tmp_path: Path) -> None:
    script = [
        {"agent": "desk", "tick": 1, "reply": reply(entry("request", "a?", target="ann", deadline=2))},
        {"agent": "desk", "reply": say("done", kind="response")},
        {"agent": "ann", "reply": reply(entry("status", "busy"))},
    ]
    org = org_of(tmp_path, *(resume(name, **QUIET, **ONE) for name in ("desk", "ann")), script=script)
    request = ask(org, "desk", budget=12)
    for _ in range(6):
        tick(org)
    spent = sum(read_state(org, name).credits for name in ("desk", "ann"))
    assert answers(org, "desk")[request.id]["spent"] == spent


def test_a_call_that_broke_off_counts_as_spent_of_the_budget(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    haphazard(base)
    monkeypatch.setattr(Bank, "tells", lambda _: "is cut off")
    spend(base, 0, budget=4)
    assert Bank.bill == 3.0
    (last,) = [it for kind, it in said(base, "ann") if kind == "response"]
    assert "3 of the request's 4 credits are spent, and a call can cost 1.5" in last["text"]


def test_who_takes_requests_with_its_inbox_is_not_asked_for_one_with_a_budget(tmp_path: Path) -> None:
    asks = {"agent": "desk", "tick": 1, "reply": reply(entry("request", "what?", target="ann"))}
    script = [asks, {"reply": say("done", kind="response")}]
    org = org_of(tmp_path, resume("desk", **QUIET), resume("ann", **QUIET), script=script)
    ask(org, "desk", budget=6)
    tick(org)
    tick(org)
    assert [kind for kind, _ in said(org, "desk")] == ["response"]
    assert read_state(org, "ann").credits == 0.0


def test_it_is_asked_for_one_without_a_budget(tmp_path: Path) -> None:
    asks = {"agent": "desk", "tick": 1, "reply": reply(entry("request", "what?", target="ann"))}
    script = [asks, {"reply": say("done", kind="response")}]
    org = org_of(tmp_path, resume("desk", **QUIET), resume("ann", **QUIET), script=script)
    ask(org, "desk")
    tick(org)
    tick(org)
    assert read_state(org, "ann").credits == 1.0


@pytest.mark.parametrize("budget", [0, -1, True, "much", [2], 10**400])
def test_a_budget_that_a_person_writes_by_hand_is_held(tmp_path: Path, budget: object) -> None:
    org = org_of(tmp_path, resume("ada", **QUIET))
    payload = {"text": "what?", "target": "ada", "budget": budget}
    write_person_entry(org, "human", tick=1, kind="request", payload=payload, tags=[], created_at="")
    assert sum(turn.calls for turn in tick(org).turns) == 0
