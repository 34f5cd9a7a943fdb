"""A person's part in a program: what waits, an answer, a yes with other arguments, a no with a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S

import lemming
from lemming.engine import run_once
from lemming.kernel.base.errors import UsageError
from lemming.testing import say, write_script

SCRIPTED = {"provider": "scripted", "tools": "native", "options": {"file": "config/answers.jsonl"}}


def pay(to: str, amount: int) -> str:
    """Pay somebody."""
    return f"{amount} went to {to}"


@pytest.fixture
def org(tmp_path: Path) -> lemming.Organisation:
    clerk = {"does": "Pay.", "read": "human", "tools": pay, "approve": "pay"}
    org = lemming.build(tmp_path / "org", agents={"clerk": clerk}, models={"default": SCRIPTED})
    calls = [{"tool": "pay", "args": {"to": "bob", "amount": 9}}]
    told = [
        {"contains": contains, "reply": say(said, kind="response")}
        for contains, said in (("3 went to bob", "paid"), ("too much", "not paid"))
    ]
    write_script(org.base, [*told, {"agent": "clerk", "calls": calls}])
    return org


def asked(org: lemming.Organisation) -> tuple[lemming.AskOutcome[Any], Any]:
    outcome = lemming.ask(org, "clerk", "Pay bob.", timeout_s=PATIENCE_S)
    (waits,) = lemming.list_person_inbox(org)
    return outcome, waits


def test_a_call_is_approved_with_other_arguments(org: lemming.Organisation) -> None:
    outcome, waits = asked(org)
    assert (outcome.why, waits.call["args"]) == ("waits_for_asker", {"to": "bob", "amount": 9})
    file = lemming.approve(org, waits, edits={"amount": 3})
    assert (org / file).exists()
    assert lemming.wait_for(org, outcome, timeout_s=PATIENCE_S).value == "paid"
    with pytest.raises(UsageError):
        lemming.approve(org, waits)


def test_a_call_is_denied_with_a_reason(org: lemming.Organisation) -> None:
    outcome, waits = asked(org)
    lemming.deny(org, waits.id, "too much")
    assert lemming.wait_for(org, outcome.id, timeout_s=PATIENCE_S).value == "not paid"


def test_what_an_agent_asks_a_person_is_answered(tmp_path: Path) -> None:
    clerk = {"does": "Ask.", "read": "human", "ask": "human"}
    org = lemming.build(tmp_path / "org", agents={"clerk": clerk}, models={"default": SCRIPTED})
    ask = {"kind": "request", "payload": {"text": "How many?", "target": "human"}, "tags": []}
    write_script(org.base, [{"agent": "clerk", "reply": say("", outbox_entries=[ask])}])
    run_once(org)
    waits = lemming.list_person_inbox(org)[0]
    lemming.answer(org, waits, "three")
    assert lemming.list_person_inbox(org) == []
    assert lemming.wait_for(org, waits.id).value == "three"


def test_a_question_put_once_is_waited_for_and_one_that_was_taken_back_is_put_again(tmp_path: Path) -> None:
    agents = {"clerk": {"does": "Answer.", "read": "human"}}
    org = lemming.build(tmp_path / "org", agents=agents, models={"default": SCRIPTED})
    write_script(org.base, [{"reply": say("three", kind="response")}])
    ids = [
        lemming.ask(org, "clerk", text, once=True, conversation=conversation, timeout_s=PATIENCE_S).id
        for text, conversation in (("how many?", ""), ("how many?", ""), ("how many?", "a"), ("and now?", ""))
    ]
    assert (ids[0] == ids[1], len({*ids})) == (True, 3)
