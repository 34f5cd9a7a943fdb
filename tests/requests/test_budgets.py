"""What a request may cost, with all that is asked for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from asked import answers, ask, open_of, org_of, said, tick
from terminal import Lemming
from test_taking import ONE, entry, reply
from test_team import QUIET, calls

from lemming.client.ask_client import ask as put
from lemming.engine import ticks
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.journal.journal_file import journal_ticks
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.obligations.request_payloads import BudgetAmount, get_budget
from lemming.kernel.tick.tick_counter import load_tick
from lemming.obligations.org_requests import load_requests
from lemming.testing import FrozenClock, make_org, resume, say, tree


def test_no_call_is_made_once_the_budget_of_a_request_is_spent(tmp_path: Path) -> None:
    working = reply(entry("status", "working on it"))
    org = org_of(tmp_path, resume("ada", **QUIET, **ONE), script=[{"reply": working}])
    request = ask(org, "ada", budget=2)
    asked = [sum(turn.calls for turn in tick(org).turns) for _ in range(4)]
    assert asked == [1, 1, 0, 0]
    answer = answers(org, "ada")[request.id]
    assert (answer["status"], answer["text"]) == ("failed", "its budget of 2 credits is used up")
    assert answer["spent"] == 2
    assert open_of(org, "ada") == []


def test_what_is_asked_for_a_request_shares_what_is_left_of_its_budget(tmp_path: Path) -> None:
    script = [
        {"agent": "desk", "contains": '"output": "', "reply": say("done", kind="response")},
        {"agent": "desk", "reply": calls(("ask_ann", {"message": "a?"}), ("ask_bob", {"message": "b?"}))},
        {"agent": "ann", "reply": reply(entry("status", "busy"))},
        {"reply": say("here")},
    ]
    desk = resume("desk", team={"ask": ["ann", "bob"]}, **QUIET)
    org = org_of(tmp_path, desk, resume("ann", **QUIET), resume("bob", **QUIET), script=script)
    request = ask(org, "desk", budget=7)
    for _ in range(6):
        tick(org)
    assert [payload["budget"] for kind, payload in said(org, "desk") if kind == "request"] == [2.0, 2.0]
    answer = answers(org, "desk")[request.id]
    assert answer["text"] == "done"
    assert answer["spent"] == 5 == sum(read_state(org, name).credits for name in ("desk", "ann", "bob"))


def test_a_budget_of_tokens_counts_what_was_read_and_written_and_is_shared_in_tokens(tmp_path: Path) -> None:
    script = [
        {"agent": "desk", "contains": '"output": "', "reply": say("done", kind="response")},
        {"agent": "desk", "reply": calls(("ask_ann", {"message": "a?"}))},
        {"reply": say("here")},
    ]
    desk = resume("desk", team={"ask": ["ann"]}, **QUIET)
    org = org_of(tmp_path, desk, resume("ann", **QUIET), script=script)
    request = ask(org, "desk", budget="100000 tokens")
    tick(org)
    asking = read_state(org, "desk")
    left = 100_000 - asking.input_tokens - asking.output_tokens
    assert [it["budget"] for kind, it in said(org, "desk") if kind == "request"] == [f"{left // 2} tokens"]
    for _ in range(4):
        tick(org)
    answer = answers(org, "desk")[request.id]
    used = [read_state(org, name) for name in ("desk", "ann")]
    assert answer["spent"] == f"{sum(it.input_tokens + it.output_tokens for it in used)} tokens"
    assert [it.tick for it in replay_ticks(org, journal_ticks(org))] == journal_ticks(org)


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ("10 tokens", "0 of the request's 10 tokens are spent, and a call can cost"),
        ("0 tokens", "its budget of 0 tokens is used up"),
        ("plenty", "its budget of 0 credits is used up"),
        (-1, "its budget of 0 credits is used up"),
    ],
)
def test_no_call_is_made_that_a_budget_does_not_pay_for(tmp_path: Path, budget: Any, words: str) -> None:
    org = org_of(tmp_path, resume("ada", **QUIET, **ONE))
    request = ask(org, "ada", budget=budget)
    assert sum(turn.calls for turn in tick(org).turns) == 0
    assert words in answers(org, "ada")[request.id]["text"]


def test_a_budget_is_typed_in_credits_or_tokens(base: Path, lemming: Lemming) -> None:
    org_of(base, resume("ada", **QUIET, **ONE))
    for typed, budget in (("7.5", 7.5), ("90000 tokens", "90000 tokens")):
        assert lemming("ask", "ada", typed, "--budget", typed).status == 0
        assert [it["budget"] for _, it in said(base, "human") if it["text"] == typed] == [budget]
    ran = lemming("ask", "ada", "more", "--budget", "lots")
    assert (ran.status, 'a budget must be credits or tokens, got "lots"' in ran.err) == (2, True)


def test_an_answer_of_a_request_without_a_budget_says_nothing_of_its_price(tmp_path: Path) -> None:
    org = org_of(tmp_path, resume("ada", **QUIET, **ONE))
    request = ask(org, "ada")
    tick(org)
    assert "spent" not in answers(org, "ada")[request.id]


def test_turns_that_come_to_nothing_count_against_the_budget(tmp_path: Path) -> None:
    turn = {"turn": {"take": "one", "repairs": 0}}
    org = org_of(tmp_path, resume("ada", **QUIET, **turn), script=[{"reply": "no json"}])
    request = ask(org, "ada", budget=2)
    assert [sum(turn.calls for turn in tick(org).turns) for _ in range(4)] == [1, 1, 0, 0]
    assert answers(org, "ada")[request.id]["text"] == "its budget of 2 credits is used up"


BAND = [f"a{number}" for number in range(10)]


def band_org(base: Path, *, gates: list[dict[str, Any]] | None = None, parallel: int = 8) -> Path:
    """Make an organisation whose `plan` asks ten agents at once, and says so if that fails."""
    make_org(
        base,
        resume("human", model={"key": "human"}),
        resume("plan", model={"key": "plan"}),
        *(resume(name, **QUIET) for name in BAND),
        script=[{"reply": say("here", kind="response")}],
        models={"human": {"provider": "human"}},
        org={"max_parallel": parallel, **({"gates": gates} if gates else {})},
    )
    members = [{"name": name, "ask": name, "task": "go"} for name in BAND]
    fs.write_atomic(base, "agents/plan/plan.json", dump_pretty({"steps": [{"name": "all", "parallel": members}]}))
    return base


def spent(base: Path) -> float:
    return sum(read_state(base, name).credits for name in BAND)


@pytest.mark.sample(4)
@pytest.mark.parametrize("parallel", [1, 8, 64])
@pytest.mark.parametrize(("budget", "end"), [(0.0, "failed"), (2.0, "failed"), (10.9, "failed"), (11.0, "answered")])
def test_a_budget_holds_over_all_that_is_asked_at_once(tmp_path: Path, budget: float, end: str, parallel: int) -> None:
    base = band_org(tmp_path / "org", parallel=parallel)
    outcome = put(base, "plan", "go", budget=budget, clock=FrozenClock())
    assert outcome.end == end
    assert spent(base) <= budget
    assert not load_requests(base).requests.unresolved_requests
    assert [it.tick for it in replay_ticks(base, journal_ticks(base))] == journal_ticks(base)


@pytest.mark.sample(3)
@pytest.mark.parametrize("limit", [0.5, 2, 10])
def test_a_member_that_may_not_be_asked_fails_its_step_and_nobody_waits_for_it(tmp_path: Path, limit: float) -> None:
    trees = []
    for parallel in (1, 8):
        gate = {"at": "spend", "credits": limit, "per": "request", "then": "block"}
        base = band_org(tmp_path / str(parallel), gates=[gate], parallel=parallel)
        ask(base, "plan")
        list(ticks(base, clock=FrozenClock(), until_quiet=True))
        assert spent(base) <= limit
        assert not load_requests(base).requests.unresolved_requests
        (answer,) = answers(base, "plan").values()
        assert answer.get("status") == (None if limit == 10 else "failed")
        trees.append({path: raw for path, raw in tree(base).items() if path != "config/org.json"})
    assert trees[0] == trees[1]


def test_a_limit_that_will_hold_no_longer_is_waited_for_and_no_ticks_run_meanwhile(tmp_path: Path) -> None:
    gate = {"at": "spend", "calls": 1, "per": "organisation", "window": "24h", "then": "block"}
    base = band_org(tmp_path / "org", gates=[gate])
    put(base, "a0", "go", clock=FrozenClock())
    outcome = put(base, "a1", "go", clock=FrozenClock())
    assert (outcome.end, load_tick(base) < 6) == (None, True)


def test_what_is_left_pays_for_no_call(tmp_path: Path) -> None:
    working = reply(entry("status", "working on it"))
    org = org_of(tmp_path, resume("ada", **QUIET, **ONE), script=[{"reply": working}])
    request = ask(org, "ada", budget=2.5)
    assert [sum(turn.calls for turn in tick(org).turns) for _ in range(4)] == [1, 1, 0, 0]
    answer = answers(org, "ada")[request.id]
    assert (answer["status"], answer["spent"]) == ("failed", 2)
    assert "2 of the request's 2.5 credits are spent, and a call can cost 1" in answer["text"]


@pytest.mark.parametrize(
    ("whole", "parts", "share"),
    [
        (BudgetAmount(1.0), 3, 0.333333),
        (BudgetAmount(0.5), 1, 0.5),
        (BudgetAmount(0.3), 3, 0.1),
        (BudgetAmount(10.0, "tokens"), 3, 3.0),
        (BudgetAmount(9.0, "tokens"), 3, 3.0),
    ],
)
def test_shares_of_a_budget_are_as_large_as_they_can_be_and_never_more_than_the_whole(
    whole: BudgetAmount, parts: int, share: float
) -> None:
    assert whole.split_budget(parts) == BudgetAmount(share, whole.unit)


@pytest.mark.parametrize(
    ("payload", "budget"),
    [
        ({}, None),
        ({"budget": None}, None),
        ({"budget": 0}, BudgetAmount(0.0)),
        ({"budget": "9000 tokens"}, BudgetAmount(9000.0, "tokens")),
        ({"budget": "much"}, BudgetAmount(0.0)),
        ({"budget": -1}, BudgetAmount(0.0)),
        ({"budget": True}, BudgetAmount(0.0)),
    ],
    ids=str,
)
def test_a_budget_that_is_not_understood_pays_for_nothing(payload: dict[str, Any], budget: BudgetAmount | None) -> None:
    assert get_budget(payload) == budget
