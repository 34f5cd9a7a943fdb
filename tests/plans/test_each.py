"""Steps that are done for each item of a list, and plans that are given fields: `each`, `args`, `input`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from asked import ask, tick
from planned import planned_org, step, write_plan
from played import Played, plan

from lemming.capabilities.plans.plan_run import parse_run
from lemming.capabilities.plans.plan_runs import describe_step
from lemming.cli import run as lemming
from lemming.client.ask_client import ask as put
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.org.config import load_config
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.queries.org_validation import validate_agents
from lemming.testing import FrozenClock, resume, say

LOOK = step("look", "ada", task="Look at {{item.name}}, number {{number}}.", each="start.cities")
FINDS = step(
    "find", "ada", writes="found", output={"properties": {"cities": {"type": "array"}, "land": {"type": "string"}}}
)
CITIES = [{"name": "Oslo"}, {"name": "Rome"}, {"name": "Kyiv"}]


def run_of(played: Played) -> Any:
    return played.memory["run-3fa9c1d2e0b7"]


def test_each_item_is_asked_about_and_the_answers_stand_in_the_order_of_the_list() -> None:
    run = Played(plan(LOOK, answer="{{steps.look}}"), cities=CITIES)
    run.turn()
    assert run.open == ["ada"] * 3
    assert [it["payload"]["text"] for it in run.asked] == [
        "Look at Oslo, number 1.", "Look at Rome, number 2.", "Look at Kyiv, number 3.",
    ]  # fmt: skip
    assert [it["payload"]["step"] for it in run.asked] == ["look.1/1/1", "look.2/1/1", "look.3/1/1"]
    for asked, text in zip(reversed(run.asked), ("k", "r", "o"), strict=True):
        asked["end"], asked["answer"] = "answered", {"text": text}
        run.turn()
    assert run.response == {"text": "1: o\n\n2: r\n\n3: k"}
    assert run_of(run)["answers"]["look"] == {"items": [{"text": text} for text in "ork"]}


def test_no_more_are_under_way_than_may_be_at_once() -> None:
    run = Played(plan({**LOOK, "at_once": 2}), cities=CITIES)
    run.turn()
    assert len(run.open) == 2
    assert parse_run(run_of(run)).items == CITIES
    run.answer("ada", "cold")
    run.turn()
    assert len(run.open) == 2
    assert run.text_for("ada") == "Look at Kyiv, number 3."
    for _ in range(2):
        run.answer("ada", "warm")
        run.turn()
    assert run.response == {"text": "1: cold\n\n2: warm\n\n3: warm"}
    assert "items" not in run_of(run)


def test_an_item_is_tried_again_by_itself_and_one_that_failed_fails_the_step() -> None:
    run = Played(plan({**LOOK, "attempts": 2, "at_once": 1}), cities=CITIES)
    run.turn()
    run.answer("ada", end="failed")
    run.turn()
    assert run.text_for("ada").startswith("Look at Oslo, number 1.\n\nThe last try was not good enough")
    run.answer("ada", end="failed")
    run.turn()
    assert len(run.asked) == 2  # nothing is begun any more
    assert run.response is not None
    assert run.response["status"] == "failed"
    assert "look.1: ada: failed" in run.response["text"]


def test_one_failure_may_be_an_answer_among_the_others() -> None:
    keeps = {**LOOK, "on_item_failure": "keep"}
    more = step("sum", "bob", task="{{steps.look}}", context=["steps.look.items.1.failed"])
    run = Played(plan(keeps, more), cities=CITIES)
    run.turn()
    for place, asked in enumerate(run.asked):
        asked["end"], asked["answer"] = ("failed" if place == 1 else "answered"), {"text": f"of {place}"}
    run.turn()
    why = "ada: failed: of 1"
    assert run.text_for("bob").startswith(f"1: of 0\n\n2: failed: {why}\n\n3: of 2")
    assert run_of(run)["answers"]["look"]["items"][1] == {"text": f"failed: {why}", "failed": why}


def test_an_answer_is_passed_or_sent_back_item_by_item() -> None:
    verify = {"ask": "bob", "task": "Is it about {{item.name}}?", "attempts": 2}
    run = Played(plan({**LOOK, "verify": verify}), cities=CITIES[:2])
    run.turn()
    for asked in run.asked:
        asked["end"], asked["answer"] = "answered", {"text": "it"}
    run.turn()
    assert run.open == ["bob", "bob"]
    assert "Is it about Rome?" in run.text_for("bob")
    run.answer("bob", passes=False, reason="too short")
    run.answer("bob", passes=True)
    run.turn()
    assert run.open == ["ada"]
    assert run.text_for("ada").endswith("The last try was not good enough: too short")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, '"start.cities" is nothing, expected a list of items'),
        ({"cities": "Oslo"}, '"start.cities" is no list, expected a list of items'),
        ({"cities": [1, 2, 3]}, '"start.cities" has 3 items, and "most" allows 2'),
    ],
)
def test_what_is_no_list_or_too_long_a_one_fails_the_step(given: dict[str, Any], why: str) -> None:
    run = Played(plan({**LOOK, "most": 2}), **given)
    run.turn()
    assert run.asked == []
    assert run.response == {"status": "failed", "text": f'the plan failed at "look": look: {why}'}


def test_an_empty_list_is_done_at_once() -> None:
    run = Played(plan({**LOOK, "writes": "found"}, step("next", "bob", context=["keys.found"])), cities=[])
    run.turn()
    assert run.open == ["bob"]
    assert run_of(run)["keys"] == {"found": {"items": []}}


def test_tools_are_called_for_each_item_and_a_person_may_lead_the_run_back_to_it() -> None:
    calls = {"name": "get", "tool": "file_read", "args": {"path": "{{item}}"}, "each": "start.files"}
    run = Played(plan({**calls, "at_once": 2}), files=["a", "b", "c"])
    assert [it["args"] for it in run.turn()["tool_calls"]] == [{"path": "a"}, {"path": "b"}]
    run.results = [{"tool": "file_read", "args": {}, "output": text, "success": True} for text in "ab"]
    assert [it["args"] for it in run.turn()["tool_calls"]] == [{"path": "c"}]
    run_of(run)["doing"] = {}
    run.results = []
    assert [it["args"] for it in run.turn()["tool_calls"]] == [{"path": "a"}, {"path": "b"}]


def test_what_is_done_for_each_is_told_to_people() -> None:
    made = plan(LOOK)
    assert describe_step(made.steps[0]) == "asks ada for each of start.cities (at most 100), 8 at once"


# --- what validate says --------------------------------------------------------------------------


def said(base: Path, agent: str = "desk") -> list[str]:
    found = validate_agents(base, load_config(base), agent)
    return [f"{it.pointer}: {it.message}" for it in found if it.severity == "error"]


OF_AN_ITEM = {"field": "item", "op": "is", "value": 1}
BAND = {"name": "b", "parallel": [step("m", "ada"), step("n", "bob")]}


@pytest.mark.parametrize(
    ("steps", "about"),
    [
        ([{**LOOK, "each": "stert.x"}], '/steps/0/each: "stert.x" is not a value of the run'),
        ([{**LOOK, "each": "steps.x.items"}], '/steps/0/each: there is no step "x"'),
        ([step("a", "ada", task="{{item}}")], '/steps/0/task: "item" is not a value of the run'),
        ([step("a", "ada", at_once=2)], '/steps/0/at_once: "at_once" has no effect here'),
        ([{**BAND, "each": "start.x"}], '/steps/0/each: "each" has no effect in a step that is a band'),
        ([{**LOOK, "choose": {"field": "x", "to": {"y": "end"}}}], "/steps/0/choose: "),
        (
            [LOOK, step("b", "bob", task="{{steps.look.text}}")],
            'the schema of the answer does not allow a field "text"',
        ),
        ([{**LOOK, "routes": [{"when": OF_AN_ITEM, "to": "end"}], "else": "end"}], '"item" is not a value of the run'),
    ],
)
def test_a_mistake_is_named_with_its_place(base: Path, steps: list[dict[str, Any]], about: str) -> None:
    planned_org(base, *steps)
    assert any(about in line for line in said(base)), said(base)


@pytest.mark.parametrize("each", ["steps.find.cities", "keys.found.cities", "steps.ask.cities"])
def test_a_list_that_a_step_gives_or_may_give_is_in_order(base: Path, each: str) -> None:
    planned_org(base, step("ask", "ada"), FINDS, {**LOOK, "each": each})
    assert said(base) == []


def test_what_is_right_is_in_order(base: Path) -> None:
    verify = {"ask": "bob", "task": "{{item}} {{answer}}", "when": OF_AN_ITEM}
    more = step("sum", "bob", task="{{steps.look}} {{steps.look.items.0.text}}")
    planned_org(base, {**LOOK, "verify": verify}, more)
    assert said(base) == []


INPUT = {
    "type": "object",
    "properties": {"topic": {"type": "string"}, "words": {"type": "integer"}},
    "required": ["topic"],
    "additionalProperties": True,
}


def two_plans(base: Path, args: dict[str, Any], **wanted: Any) -> Path:
    """Make an organisation in which the plan `desk` asks the plan `press`."""
    script = [{"agent": "ada", "reply": say("an article", kind="response")}]
    planned_org(base, {"name": "write", "plan": "press", "args": args}, script=script)
    press = resume("press", model={"key": "plan"}, permissions={"read_outboxes": ["*"]})
    fs.write_atomic(base, "agents/press/resume.json", dump_pretty(press))
    fs.write_atomic(base, "agents/ada/resume.json", dump_pretty(resume("ada", schedule={"wake": "addressed"})))
    article = step("article", "ada", task="On {{start.topic}}, {{start.words}} words.")
    write_plan(base, article, agent="press", input={**INPUT, **wanted})
    return base


def test_a_plan_is_given_fields_and_they_are_values(base: Path) -> None:
    two_plans(base, {"topic": "{{start.about}}", "words": 100})
    assert [line for line in said(base) if "press" in line] == []
    ask(base, "desk", "please", about="bees")
    for _ in range(6):
        tick(base)
    (request,) = [it for it in read_outbox_entries(base, "press") if it.kind == "request"]
    assert request.payload["text"] == "On bees, 100 words."
    (answer,) = [it for it in read_outbox_entries(base, "desk") if it.kind == "response"]
    assert answer.payload["text"] == "an article"
    assert lemming(["-C", str(base), "replay"]) == 0


def test_a_program_asks_a_plan_with_values(base: Path) -> None:
    two_plans(base, {"topic": "{{start.about}}"})
    given = {"topic": "bees", "words": 9}
    outcome = put(base, "press", fields=given, once=True, clock=FrozenClock())
    assert outcome.answer == "an article"
    (asked,) = [it for it in read_outbox_entries(base, "human") if it.kind == "request"]
    assert {key: asked.payload[key] for key in given} == given
    assert "text" not in asked.payload
    again = put(base, "press", fields=given, once=True, clock=FrozenClock())
    other = put(base, "press", fields={**given, "words": 8}, once=True, clock=FrozenClock())
    assert (again.id, other.id != again.id) == (outcome.id, True)


@pytest.mark.parametrize("key", ["target", "deadline", "hands_on", "text"])
def test_a_value_that_would_say_something_of_the_request_is_refused(base: Path, key: str) -> None:
    two_plans(base, {"topic": "{{start.about}}"})
    with pytest.raises(UsageError, match=f'"{key}" is a reserved key of requests'):
        put(base, "press", "please", fields={key: "ada"}, clock=FrozenClock())
    assert read_outbox_entries(base, "human") == []


def test_a_request_that_does_not_fit_is_refused_with_the_reason(base: Path) -> None:
    two_plans(base, {"topic": "{{start.about}}", "words": "{{start.many}}"})
    ask(base, "desk", "please", about="bees", many="lots")
    for _ in range(4):
        tick(base)
    (answer,) = [it for it in read_outbox_entries(base, "press") if it.kind == "response"]
    assert answer.payload["status"] == "refused"
    assert "words" in answer.payload["text"]
    (failed,) = [it for it in read_outbox_entries(base, "desk") if it.kind == "response"]
    assert failed.payload["status"] == "failed"
    assert "it is not what this plan asks for" in failed.payload["text"]


@pytest.mark.parametrize(
    ("args", "about"),
    [
        ({"words": 3}, '/steps/0/args: the plan of press requires the argument "topic"'),
        ({"topic": "x", "words": "many"}, '/steps/0/args/words: argument "words" does not match the input of press'),
        ({"topic": "x", "wrods": 1}, '/steps/0/args/wrods: the plan of press has no argument "wrods"'),
        ({"topic": "x", "target": "bob"}, '/steps/0/args/target: "target" is a reserved key of requests'),
    ],
)
def test_what_a_plan_is_given_is_checked_before_it_runs(base: Path, args: dict[str, Any], about: str) -> None:
    two_plans(base, args, additionalProperties=False)
    assert any(about in line for line in said(base)), said(base)


def test_an_input_that_is_no_schema_is_named(base: Path) -> None:
    two_plans(base, {"topic": "x"}, required="topic")
    assert any(line.startswith("/input") for line in said(base, "press"))
