"""Steps that ask somebody where a gate asks a person first: what waits is no failure, and is asked once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from asked import ask, tick
from planned import step, write_plan

from lemming.cli import run as lemming
from lemming.kernel.messages import OutboxEntry
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import make_org, resume, say

ASKS = {"at": "out", "when": {"field": "kind", "op": "is", "value": "request"}, "then": "ask"}


def desk_org(base: Path, *steps: dict[str, Any], expires: int | None = None, **desk: Any) -> Path:
    gate = ASKS if expires is None else {**ASKS, "expires": expires}
    make_org(
        base,
        resume("desk", **{"model": {"key": "plan"}, "gates": [gate], **desk}),
        resume("ada", schedule={"wake": "addressed"}),
        resume("bob", schedule={"wake": "addressed"}),
        resume("human", model={"key": "human"}),
        script=[
            {"contains": "whether it passes", "reply": say('{"passes": true}', kind="response")},
            *({"agent": name, "reply": say(f"{name} says so", kind="response")} for name in ("ada", "bob")),
        ],
    )
    write_plan(base, *steps)
    ask(base, "desk", "what is it?")
    return base


def asked_by_desk(base: Path, whom: str) -> list[OutboxEntry]:
    return [it for it in read_outbox_entries(base, "desk") if it.kind == "request" and it.targets == {whom}]


def decide(base: Path, *words: str) -> None:
    """Decide about all that waits for human's word."""
    done = {it.payload["reply_to"] for it in read_outbox_entries(base, "human") if it.kind == "response"}
    for request in asked_by_desk(base, "human"):
        if request.id not in done:
            assert lemming(["-C", str(base), words[0], request.id, *words[1:]]) == 0


def answer(base: Path, *words: str) -> dict[str, Any]:
    """Run ticks, and decide between them, up to the answer of the run; return its payload."""
    for _ in range(12):
        tick(base)
        found = [it for it in read_outbox_entries(base, "desk") if it.kind == "response"]
        if found:
            return found[0].payload
        decide(base, *words)
    raise AssertionError("no answer")


def test_a_step_that_waits_for_approval_to_ask_has_not_failed(tmp_path: Path) -> None:
    base = desk_org(tmp_path, step("look", "ada"))
    assert answer(base, "approve")["text"] == "ada says so"
    assert len(asked_by_desk(base, "human")) == 1
    assert len(asked_by_desk(base, "ada")) == 1
    assert lemming(["-C", str(base), "replay"]) == 0
    assert lemming(["-C", str(base), "verify"]) == 0


def test_nothing_is_asked_before_a_person_says_yes(tmp_path: Path) -> None:
    base = desk_org(tmp_path, step("look", "ada"))
    for _ in range(4):
        tick(base)
    assert asked_by_desk(base, "ada") == []
    assert len(asked_by_desk(base, "human")) == 1


def test_a_band_asks_each_once_all_are_approved(tmp_path: Path) -> None:
    base = desk_org(tmp_path, {"name": "both", "parallel": [step("one", "ada"), step("two", "bob")]})
    said = answer(base, "approve")
    assert (said.get("status"), said["text"].count("says so")) == (None, 2)
    assert [len(asked_by_desk(base, name)) for name in ("human", "ada", "bob")] == [2, 1, 1]


def test_a_no_lets_the_step_fail_with_what_the_person_said(tmp_path: Path) -> None:
    base = desk_org(tmp_path, step("look", "ada"))
    said = answer(base, "deny", "--reason", "leave her alone")
    assert said["status"] == "failed"
    assert "DENIED by human: leave her alone" in said["text"]
    assert asked_by_desk(base, "ada") == []
    assert len(asked_by_desk(base, "human")) == 1


def test_a_no_to_one_of_a_band_is_none_to_the_other(tmp_path: Path) -> None:
    band = {"name": "both", "parallel": [step("one", "ada"), step("two", "bob")], "attempts": 1}
    base = desk_org(tmp_path, band)
    tick(base)
    one, two = asked_by_desk(base, "human")
    lemming(["-C", str(base), "deny", one.id, "--reason", "leave her alone"])
    lemming(["-C", str(base), "approve", two.id])
    said = answer(base, "approve")
    assert said["status"] == "failed"
    assert "one: DENIED by human: leave her alone" in said["text"]
    assert "two:" not in said["text"]
    assert len(asked_by_desk(base, "bob")) == 1


def test_the_word_of_a_person_in_the_place_of_the_question_is_its_answer(tmp_path: Path) -> None:
    base = desk_org(tmp_path, step("look", "ada"))
    assert answer(base, "answer", "I know it myself")["text"] == "I know it myself"
    assert asked_by_desk(base, "ada") == []


def test_silence_lets_the_step_fail(tmp_path: Path) -> None:
    base = desk_org(tmp_path, step("look", "ada"), expires=1)
    for _ in range(5):
        tick(base)
    (said,) = [it.payload for it in read_outbox_entries(base, "desk") if it.kind == "response"]
    assert "nobody answered by tick" in said["text"]


def test_what_is_beyond_what_a_turn_may_ask_about_is_asked_about_later(tmp_path: Path) -> None:
    band = {"name": "both", "parallel": [step("one", "ada"), step("two", "bob")]}
    base = desk_org(tmp_path, band, turn={"max_approvals": 1})
    said = answer(base, "approve")
    assert (said.get("status"), said["text"].count("says so")) == (None, 2)
    assert [len(asked_by_desk(base, name)) for name in ("human", "ada", "bob")] == [2, 1, 1]


@pytest.mark.parametrize("most", [1, 5])
def test_who_verifies_is_asked_once_that_is_approved(tmp_path: Path, most: int) -> None:
    band = [step(name, "ada", verify={"ask": "bob"}) for name in ("one", "two")]
    base = desk_org(tmp_path, {"name": "both", "parallel": band}, turn={"max_approvals": most})
    answer(base, "approve")
    assert [len(asked_by_desk(base, name)) for name in ("human", "ada", "bob")] == [4, 2, 2]


@pytest.mark.parametrize("words", [("approve",), ("deny",)])
def test_the_rest_of_the_plan_goes_on_as_without_a_gate(tmp_path: Path, words: tuple[str, ...]) -> None:
    steps = [step("look", "ada", on_failure="other"), step("other", "bob")]
    base = desk_org(tmp_path, *steps)
    tick(base)
    decide(base, *words)
    assert answer(base, "approve")["text"] == "bob says so"
