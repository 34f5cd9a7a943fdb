"""Retention and what somebody waits for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from asked import answers, ask, org_of, said, tick
from test_taking import ONE, entry, reply

from lemming.engine import ticks
from lemming.kernel.journal.ledger import AgentState, read_state, write_state
from lemming.kernel.journal.read_cursor import ReadMark
from lemming.kernel.messages import list_outbox
from lemming.testing import FrozenClock, resume, say

NEVER = {"run_every_n_ticks": 1000, "phase_offset": 1}


def brief(org: Path) -> Path:
    (org / "config/org.json").write_text(json.dumps({"retention_ticks": 3}))
    return org


def kept(org: Path, author: str) -> set[str]:
    return {name.id for name in list_outbox(org, author)}


def test_an_open_request_is_kept_and_one_past_its_deadline_is_not(tmp_path: Path) -> None:
    org = brief(org_of(tmp_path, resume("ada"), resume("bob", schedule=NEVER, **ONE)))
    waits, over = ask(org, "bob"), ask(org, "bob", deadline=2)
    for _ in range(60):
        tick(org)
    assert kept(org, "human") == {waits.id} != {over.id}


def test_an_answer_is_kept_until_the_person_who_asked_has_seen_it(tmp_path: Path) -> None:
    org = brief(org_of(tmp_path, resume("ada", **ONE), script=[{"reply": say("x", kind="response")}]))
    ask(org, "ada")
    for _ in range(10):
        tick(org)
    (answer,) = (name for name in list_outbox(org, "ada") if name.tick == 1)
    write_state(org, "human", AgentState(read=ReadMark(also=frozenset([answer.identity]))))
    tick(org)
    assert answer not in list_outbox(org, "ada")


def test_a_request_to_a_person_is_kept_until_it_is_answered(tmp_path: Path) -> None:
    script = [{"agent": "ada", "tick": 1, "reply": reply(entry("request", "may I?", target="human"))}]
    org = brief(org_of(tmp_path, resume("ada"), script=[*script, {"reply": say("x")}]))
    tick(org)
    (request,) = kept(org, "ada")
    for _ in range(10):
        tick(org)
    assert request in kept(org, "ada")
    ask(org, "ada", kind="response", reply_to=request)
    for _ in range(3):
        tick(org)
    assert request not in kept(org, "ada")


@pytest.mark.parametrize("in_one_run", [False, True])
def test_what_a_begun_request_needs_is_kept(tmp_path: Path, in_one_run: bool) -> None:
    script = [
        {"agent": "ada", "contains": "What you asked for it", "reply": say("done", kind="response")},
        {"agent": "ada", "contains": "# Asked of you", "reply": reply(entry("request", "help", target="bob"))},
    ]
    bob = resume("bob", schedule={"run_every_n_ticks": 40, "phase_offset": 1, "wake": "addressed"}, **ONE)
    org = brief(org_of(tmp_path, resume("ada", **ONE), bob, resume("cyd"), script=[*script, {"reply": say("x")}]))
    reports = ticks(org, interval_s=0, max_ticks=46, clock=FrozenClock()) if in_one_run else None
    for number in range(1, 47):
        _ = next(reports) if reports else tick(org)
        if number == 6:  # once a tick has looked for what has expired
            request = ask(org, "ada")
    assert answers(org, "ada")[request.id]["text"] == "done"


def test_an_agent_that_is_woken_by_name_misses_nothing_that_does_not_name_it(tmp_path: Path) -> None:
    org = brief(org_of(tmp_path, resume("ada"), resume("bob", schedule={"wake": "addressed"})))
    for _ in range(20):
        tick(org)
    assert len(said(org, "ada")) < 8
    assert read_state(org, "bob").expired_unread == 0
