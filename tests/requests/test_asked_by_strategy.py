"""Requests to agents that take their turns by strategies: asking others, handing on, and budgets that end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from asked import answers, ask, open_of, org_of, said, tick
from test_team import QUIET, calls

from lemming.cli import run
from lemming.kernel.base.entry_kinds import MessageKind
from lemming.kernel.journal.turn_report import TurnReport
from lemming.kernel.memory import load_memory
from lemming.testing import resume, say

STRATEGIES = ["plan_execute", "reflexion"]
GOOD = {"contains": "Judge the draft", "reply": {"passes": True, "reason": ""}}
BAD = {"contains": "Judge the draft", "reply": {"passes": False, "reason": "too short"}}
PLAN = {"contains": "First make a plan", "reply": {"goal": "see", "steps": ["look", "tell"]}}
ASKS_ANN = calls(("ask_ann", {"message": "how many?"}))
HANDS_ON = calls(("hand_to_bob", {"message": "yours"}))


def asked(base: Path, strategy: str, *script: dict[str, Any], kind: MessageKind = "request", **how: Any) -> str:
    """Ask an agent with a team, whose turns are by this strategy, and return the request's id."""
    team = {"ask": ["ann"], "hand_to": ["bob"]}
    take = {"take": "one"} if kind == "request" else {}
    desk = resume("desk", team=team, turn={"strategy": strategy, **take, **how.pop("turn", {})}, **QUIET)
    others = resume("ann", **QUIET), resume("bob", **QUIET)
    lines = [{"agent": "ann", "reply": say("it is 7")}, {"agent": "bob", "reply": say("bob has done it")}]
    return ask(org_of(base, desk, *others, script=[*lines, *script]), "desk", kind=kind, **how).id


def turns_of_desk(base: Path, ticks: int) -> list[TurnReport]:
    """Run ticks; return the turns of the agent that was asked, which replay takes again to the same end."""
    turns = [turn for _ in range(ticks) for turn in tick(base).turns if turn.agent == "desk"]
    assert run(["-C", str(base), "replay"]) == 0
    assert run(["-C", str(base), "verify"]) == 0
    return turns


def ends(turns: list[TurnReport]) -> list[str]:
    return [turn.end for turn in turns if turn.status != "skipped"]


@pytest.mark.parametrize("kind", ["request", "message"])
def test_a_step_of_a_plan_waits_for_whom_it_asks_and_goes_on_with_the_answer(base: Path, kind: MessageKind) -> None:
    last: MessageKind = "response" if kind == "request" else "message"
    script = [
        PLAN,
        {"contains": "take step 2,", "reply": say("told")},
        {"contains": "Sum up", "reply": say("seven", kind=last)},
        {"contains": '"output": "it is 7"', "reply": say("ann says 7")},
        {"contains": "take step 1,", "reply": ASKS_ANN},
    ]
    request = asked(base, "plan_execute", *script, kind=kind)
    turns = turns_of_desk(base, 5)
    assert ends(turns) == ["waits", "done"]
    assert [turn.calls for turn in turns if turn.calls] == [2, 3]
    assert turns[0].reason == "waits for ann"
    plan = load_memory(base, "desk", f"plan-{request}" if kind == "request" else "plan")
    assert [(step["status"], step["result"]) for step in plan["steps"]] == [("done", "ann says 7"), ("done", "told")]
    assert plan["is_over"]
    assert [text for _, payload in said(base, "desk") if (text := payload["text"]) != "how many?"] == ["seven"]
    assert open_of(base, "desk") == []


def test_a_sum_up_may_ask_too_and_is_asked_for_again_with_the_answer(base: Path) -> None:
    script = [
        PLAN,
        {"contains": "take step", "reply": say("done that")},
        {"contains": '"output": "it is 7"', "reply": say("seven", kind="response")},
        {"contains": "Sum up", "reply": ASKS_ANN},
    ]
    request = asked(base, "plan_execute", *script)
    assert ends(turns_of_desk(base, 5)) == ["waits", "done"]
    assert answers(base, "desk")[request]["text"] == "seven"


@pytest.mark.parametrize("words", ["take step 1,", "Sum up"])
def test_a_plan_may_hand_its_request_on_and_is_over_then(base: Path, words: str) -> None:
    script = [PLAN, {"contains": words, "reply": HANDS_ON}, {"contains": "take step", "reply": say("ok")}]
    request = asked(base, "plan_execute", *script)
    assert ends(turns_of_desk(base, 4)) == ["handed_on"]
    assert [kind for kind, _ in said(base, "desk")] == ["request"]
    assert answers(base, "bob")[request]["text"] == "bob has done it"
    assert open_of(base, "desk") == open_of(base, "bob") == []
    assert load_memory(base, "desk", f"plan-{request}")["is_over"]


@pytest.mark.parametrize("kind", ["request", "message"])
def test_a_draft_waits_for_whom_it_asks_and_is_written_with_the_answer(base: Path, kind: MessageKind) -> None:
    last: MessageKind = "response" if kind == "request" else "message"
    script = [GOOD, {"contains": '"output": "it is 7"', "reply": say("seven", kind=last)}, {"reply": ASKS_ANN}]
    asked(base, "reflexion", *script, kind=kind)
    turns = turns_of_desk(base, 5)
    assert (ends(turns), [turn.calls for turn in turns if turn.calls]) == (["waits", "done"], [1, 2])
    assert [payload["text"] for _, payload in said(base, "desk")] == ["how many?", "seven"]
    assert open_of(base, "desk") == []


def test_a_draft_may_hand_its_request_on_and_nobody_judges(base: Path) -> None:
    request = asked(base, "reflexion", BAD, {"reply": HANDS_ON})
    turns = turns_of_desk(base, 4)
    assert (ends(turns), turns[0].calls) == (["handed_on"], 1)
    assert answers(base, "bob")[request]["text"] == "bob has done it"


def test_a_revision_that_asks_keeps_the_draft_back_until_there_is_an_answer(base: Path) -> None:
    script = [
        {"contains": "it is 7 indeed", "reply": {"passes": True, "reason": ""}},
        BAD,
        {"contains": '"output": "it is 7"', "reply": say("it is 7 indeed", kind="response")},
        {"contains": "A critic wants", "reply": ASKS_ANN},
        {"reply": say("some", kind="response")},
    ]
    request = asked(base, "reflexion", *script)
    turns = turns_of_desk(base, 5)
    assert ends(turns) == ["waits", "done"]
    assert answers(base, "desk")[request]["text"] == "it is 7 indeed"
    assert [payload["text"] for _, payload in said(base, "desk")] == ["how many?", "it is 7 indeed"]


def test_a_revision_that_hands_the_request_on_keeps_the_draft_back(base: Path) -> None:
    script = [BAD, {"contains": "A critic wants", "reply": HANDS_ON}, {"reply": say("some", kind="response")}]
    request = asked(base, "reflexion", *script)
    assert ends(turns_of_desk(base, 4)) == ["handed_on"]
    assert [kind for kind, _ in said(base, "desk")] == ["request"]
    assert answers(base, "bob")[request]["text"] == "bob has done it"


@pytest.mark.sample(3)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("budget", [1, 2, 3, 4, 5])
def test_a_budget_that_ends_on_the_way_is_not_exceeded_and_the_request_has_an_end(
    base: Path, strategy: str, budget: int
) -> None:
    script = [
        PLAN,
        {"contains": "take step", "reply": say("done that")},
        {"contains": "Sum up", "reply": say("summed up", kind="response")},
        BAD,
        {"contains": "A critic wants", "reply": say("a longer one", kind="response")},
        {"reply": say("short", kind="response")},
    ]
    request = asked(base, strategy, *script, budget=budget)
    turns = turns_of_desk(base, 4)
    answer = answers(base, "desk")[request]
    assert sum(turn.calls for turn in turns) == answer["spent"] <= budget
    expected = {
        "plan_execute": ["", "", "", "summed up", "summed up"],
        "reflexion": ["short", "short", "a longer one", "a longer one", "a longer one"],
    }[strategy][budget - 1]
    assert answer["text"] == (expected or f"its budget of {budget} credits is used up")
    assert answer.get("status") == (None if expected else "failed")
    assert ends(turns) == ["done"] if expected else ["out_of_credits", "done"]
    assert open_of(base, "desk") == []


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_is_asked_on_the_way_is_paid_from_the_same_budget(base: Path, strategy: str) -> None:
    script = [
        PLAN,
        GOOD,
        {"contains": "Sum up", "reply": say("seven", kind="response")},
        {"contains": '"output": "it is 7"', "reply": say("seven", kind="response")},
        {"contains": "take step 2,", "reply": say("told")},
        {"reply": ASKS_ANN},
    ]
    request = asked(base, strategy, *script, budget=12)
    turns = turns_of_desk(base, 5)
    assert ends(turns) == ["waits", "done"]
    first = turns[0].calls
    (payload,) = [payload for kind, payload in said(base, "desk") if kind == "request"]
    assert payload["budget"] == (12 - first) / 2
    assert answers(base, "desk")[request]["spent"] == sum(turn.calls for turn in turns) + 1
