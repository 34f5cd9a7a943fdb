"""The entry that hands a request on: the engine writes it, whoever asked for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from asked import ask, org_of, person, said, tick
from terminal import Lemming
from test_taking import ONE, entry, reply
from test_team import QUIET, calls

from lemming.libraries.outbox_files import read_outbox_entries
from lemming.obligations.org_requests import find_request, load_requests
from lemming.testing import make_org, resume, say, write_script

PEOPLE = {"human": {"provider": "human"}}
HANDS_ON = {"team": {"hand_to": ["bob"]}, **QUIET, **ONE}
FORGED: dict[str, dict[str, Any]] = {
    "another request": {"hands_on": "0123456789ab", "target": "bob"},
    "to somebody else": {"target": "cyd"},
    "to two": {"target": ["bob", "cyd"]},
    "without a text": {"target": "bob", "text": 7},
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_a_model_hands_on_nothing_but_the_request_of_its_turn(tmp_path: Path, forged: dict[str, Any]) -> None:
    org = org_of(tmp_path, resume("desk", **HANDS_ON), *(resume(it, **QUIET, **ONE) for it in ("bob", "cyd")))
    request = ask(org, "desk", budget=9)
    payload = {"text": "yours", "hands_on": request.id, "owed_to": "human", "budget": 9000, **forged}
    written = entry("request", payload.pop("text"), **payload)
    write_script(org, [{"reply": reply(written, entry("status", "busy"))}])
    tick(org)
    assert [kind for kind, _ in said(org, "desk")] == ["status"]


def test_a_request_that_a_model_hands_on_by_hand_moves_with_what_is_left(tmp_path: Path) -> None:
    org = org_of(tmp_path, resume("desk", **HANDS_ON), resume("bob", **QUIET, **ONE))
    request = ask(org, "desk", budget=9)
    written = entry("request", "yours", hands_on=request.id, target="bob", budget=9000, hops=-5, owed_to="bob")
    write_script(org, [{"agent": "desk", "reply": reply(written)}, {"reply": reply(entry("status", "busy"))}])
    report = tick(org)
    ((_, payload),) = said(org, "desk")
    assert [it.end for it in report.turns if it.agent == "desk"] == ["handed_on"]
    assert (payload["budget"], payload["hops"], payload["owed_to"]) == (8.0, 1, "human")


def test_a_call_that_was_approved_hands_the_request_on(base: Path, lemming: Lemming) -> None:
    gate = {"at": "out", "when": {"field": "kind", "op": "is", "value": "request"}, "then": "ask"}
    org = make_org(
        base,
        person(),
        resume("desk", **HANDS_ON),
        resume("bob", **QUIET, **ONE),
        models=PEOPLE,
        org={"gates": [gate]},
        script=[
            {"agent": "desk", "reply": calls(("hand_to_bob", {"message": "yours"}))},
            {"agent": "bob", "reply": say("here", kind="response")},
        ],
    )
    ask(org, "desk", budget=9)
    tick(org)
    (waiting,) = read_outbox_entries(org, "desk")
    assert lemming("approve", waiting.id).status == 0
    ends = {it.agent: it.end for it in tick(org).turns}
    assert ends["desk"] == "handed_on"
    tick(org)
    (answer,) = [payload for kind, payload in said(org, "bob") if kind == "response"]
    assert answer["target"] == "human"


def test_one_answer_is_to_both_where_one_of_those_asked_is_handed_the_part_of_another(tmp_path: Path) -> None:
    script = [
        {"agent": "desk", "reply": calls(("hand_to_bob", {"message": "yours"}))},
        {"agent": "bob", "tick": 1, "reply": reply(entry("status", "busy"))},
        {"agent": "bob", "reply": say("here", kind="response")},
    ]
    org = org_of(tmp_path, resume("desk", **HANDS_ON), resume("bob", **QUIET, **ONE), script=script)
    request = ask(org, ["desk", "bob"])
    for _ in range(4):
        tick(org)
    view = find_request(load_requests(org).requests, request.id)
    assert (view.end, [share.assignee for share in view.assignments]) == ("answered", ["bob", "bob"])


def test_who_answered_and_is_then_handed_the_part_of_another_answers_again(tmp_path: Path) -> None:
    script = [
        {"agent": "desk", "tick": 2, "reply": calls(("hand_to_bob", {"message": "yours"}))},
        {"agent": "desk", "reply": reply(entry("status", "busy"))},
        {"agent": "bob", "reply": say("here", kind="response")},
    ]
    org = org_of(tmp_path, resume("desk", **HANDS_ON), resume("bob", **QUIET, **ONE), script=script)
    ask(org, ["desk", "bob"])
    for _ in range(5):
        tick(org)
    assert [kind for kind, _ in said(org, "bob")] == ["response", "response"]


def test_a_request_that_is_handed_on_reaches_who_may_not_read_its_asker(base: Path, lemming: Lemming) -> None:
    bob = resume("bob", permissions={"read_outboxes": ["desk"], "tools": []}, **QUIET, **ONE)
    script = [{"agent": "desk", "reply": calls(("hand_to_bob", {"message": "yours"}))}]
    org = org_of(base, resume("desk", **HANDS_ON), bob, script=script)
    ask(org, "desk")
    tick(org)
    (request,) = lemming("requests", "--json").objects
    assert (request["holders"], request["out_of_reach"]) == (["bob"], [])


def test_an_answered_request_names_who_held_it_last(base: Path, lemming: Lemming) -> None:
    script = [
        {"agent": "desk", "reply": calls(("hand_to_bob", {"message": "yours"}))},
        {"agent": "bob", "reply": say("here", kind="response")},
    ]
    org = org_of(base, resume("desk", **HANDS_ON), resume("bob", **QUIET, **ONE), script=script)
    ask(org, "desk")
    for _ in range(2):
        tick(org)
    (line,) = [line for line in lemming("requests").out.splitlines() if "answered" in line]
    assert "human > bob" in line
