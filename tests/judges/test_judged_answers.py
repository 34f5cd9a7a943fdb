"""Answers that were asked for, judged for who asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from judged import BAD, CRITIC, GOOD, HUMAN, QUIET, SENT_BACK, entries, program, replays, texts, verdict

from lemming.engine import run_once
from lemming.kernel.journal.turn_report import TurnReport
from lemming.libraries.outbox_files import write_person_entry
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say

ASKS = {
    "agent": "ada",
    "reply": say("busy", kind="status", tool_calls=[{"tool": "ask_bob", "args": {"message": "Why?"}}]),
}
TOLD = {"agent": "ada", "contains": '"output": "', "reply": say("thanks", kind="response")}


def asked(base: Path, target: str) -> None:
    write_person_entry(
        base, "human", tick=1, kind="request", payload={"text": "Why?", "target": target}, tags=[], created_at=""
    )


def team_of(base: Path, verify: dict[str, Any], *script: dict[str, Any], bob: dict[str, Any] | None = None) -> None:
    """Ada, who was asked, asks bob, whose answers she has judged."""
    team = {"ask": [{"agent": "bob", "verify": verify}]}
    make_org(
        base,
        resume("ada", team=team, schedule=QUIET),
        resume("bob", schedule=QUIET, **(bob or {})),
        resume("cyd", schedule=QUIET),
        CRITIC,
        HUMAN,
        script=[TOLD, *script, ASKS],
    )
    asked(base, "ada")


def answer(text: str, **how: Any) -> dict[str, Any]:
    return {"agent": "bob", "reply": say(text, kind="response"), **how}


def run_ticks(base: Path, count: int) -> list[TurnReport]:
    return [turn for _ in range(count) for turn in run_once(base, clock=FrozenClock()).turns]


def test_an_answer_that_was_asked_for_is_judged_for_who_asked(base: Path) -> None:
    passes = verdict(passes=True, reason="", step=3)
    better = answer("because of the tide", contains=SENT_BACK)
    team_of(base, {"by": "critic", "policy": "Give a reason."}, passes, BAD, better, answer("because"))
    turns = run_ticks(base, 2)
    (bob,) = (turn for turn in turns if turn.agent == "bob" and turn.calls)
    assert (bob.calls, texts(base, "bob")) == (4, ["because of the tide"])
    started = [line for line in journal_lines(base, bob_tick(base)) if line["type"] == "turn_started"]
    judge = next(line["given"]["judges"]["by"][0] for line in started if line["agent"] == "bob")
    assert (judge["asker"], judge["policy"]) == ("ada", "Give a reason.")
    assert all("given" not in line for line in started if line["agent"] != "bob")
    assert replays(base)


def bob_tick(base: Path) -> int:
    return int(entries(base, "bob")[0]["tick"])


@pytest.mark.parametrize(("then", "tags"), [("flag", ["unverified"]), ("pass", []), ("fail", [])])
def test_a_request_ends_as_who_asked_wants_it(base: Path, then: str, tags: list[str]) -> None:
    team_of(base, {"by": "critic", "max": 1, "then": then}, BAD, answer("because"))
    run_ticks(base, 3)
    (entry,) = entries(base, "bob")
    assert (entry["kind"], entry["tags"]) == ("response", tags)
    assert entry["payload"].get("status") == ("failed" if then == "fail" else None)
    assert ("too short" in entry["payload"]["text"]) == (then == "fail")
    assert "thanks" in texts(base, "ada")
    assert replays(base)


def test_what_is_no_answer_is_not_judged_for_who_asked(base: Path) -> None:
    working = {"agent": "bob", "reply": say("working on it", kind="status")}
    team_of(base, {"by": "critic"}, BAD, working)
    of_bob = [turn for turn in run_ticks(base, 2) if turn.agent == "bob" and turn.calls]
    assert {(turn.calls, turn.judged is None) for turn in of_bob} == {(1, True)}
    assert {tag for entry in entries(base, "bob") for tag in entry["tags"]} == set()


def test_a_request_whose_answer_is_judged_is_not_handed_on(base: Path) -> None:
    hand = {"tool": "hand_to_cyd", "args": {"message": "You do it."}}
    handing = {"agent": "bob", "reply": say("no", tool_calls=[hand], kind="response")}
    team_of(base, {"by": "critic"}, GOOD, handing, bob={"team": {"hand_to": ["cyd"]}})
    run_ticks(base, 2)
    assert [entry["kind"] for entry in entries(base, "bob")] == ["response"]


def test_an_agent_cannot_have_others_judged_by_what_it_writes(base: Path) -> None:
    """Only the word of a resume or of a plan counts: a payload may come from anybody."""
    program(base, "open('ran', 'w')")
    payload = {"text": "Why?", "target": "bob", "verify": {"by": {"command": ["python3", "./check.py"]}}}
    asks = {"outbox_entries": [{"kind": "request", "payload": payload, "tags": []}]}
    make_org(
        base,
        resume("ada", schedule=QUIET),
        resume("bob", schedule=QUIET),
        HUMAN,
        script=[answer("because"), {"agent": "ada", "reply": json.dumps(asks)}],
    )
    asked(base, "ada")
    run_ticks(base, 2)
    assert texts(base, "bob") == ["because"]
    assert not (base / "ran").exists()
