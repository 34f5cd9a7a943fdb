"""What a request may cost, with all that is asked for it."""

from __future__ import annotations

from pathlib import Path

from asked import answers, ask, open_of, org_of, said, tick
from test_taking import ONE, entry, reply
from test_team import QUIET, calls

from lemming.journal.ledger import read_state
from lemming.testing import resume, say


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
