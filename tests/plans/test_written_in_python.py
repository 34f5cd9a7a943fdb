"""Plans as Python objects: the file that comes out is the one that a person would have written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import get_type_hints

import pytest
from patience import PATIENCE_S

import lemming
from lemming.capabilities.plans.plan_builder import (
    Condition,
    PlanStep,
    StepKeys,
    answer,
    approve,
    ask,
    call,
    decide,
    follow,
    item,
    keys,
    memory,
    number,
    parallel,
    plan,
    previous,
    start,
    wait,
)
from lemming.capabilities.plans.plan_format import StepAction, StepDefinition, parse_plan
from lemming.capabilities.plans.plan_rules import validate_plan
from lemming.kernel.agents import load_agent
from lemming.kernel.base.errors import ConfigError, UsageError
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files.fast_decoder import file_fields, file_key
from lemming.kernel.org.config import load_config
from lemming.queries.org_validation import validate_agents
from lemming.testing import say, write_script

PAGE = (Path(__file__).parents[2] / "docs/plans.md").read_text()
(BY_HAND,) = re.findall(r"```json plan\n(.*?)```", PAGE, re.DOTALL)
SCRIPTED = {"provider": "scripted", "tools": "native", "options": {"file": "config/answers.jsonl"}}


@dataclass
class Verdict:
    """What a critic is to say."""

    score: int


def shout(text: str) -> str:
    """Say it loudly."""
    return text.upper()


def test_the_plan_of_the_page_is_the_same_file() -> None:
    facts = ask("facts", "researcher", f"Three facts about: {start}", writes="facts")
    angles = parallel(
        "angles",
        ask("for", "ada", "Argue for it.", context=[keys["facts"]]),
        ask("against", "bob", "Argue against it.", context=[keys["facts"]]),
    )
    draft = ask(
        "draft",
        "writer",
        "Write it up. This is draft {{round}}.",
        context=[keys["facts"], angles, "steps.review"],
        limit=3,
        at_limit="ship",
    )
    ways = {"good": "ship", "bad": draft}
    review = ask("review", "critic", "Is it good?", context=[previous], choose=("verdict", ways))
    ship = ask(
        "ship", "human", "May it go out?", context=[draft], routes=[(answer["text"] == "yes", "end")], else_="fail"
    )
    written = plan(
        facts, angles, draft, review, ship, answer=draft, description="An article somebody has read before it goes out."
    )
    assert written.as_json() == json.loads(BY_HAND)
    assert parse_plan(str(written).encode(), "plan.json").value == parse_plan(BY_HAND.encode(), "plan.json").value


def test_every_kind_of_step_and_every_key_comes_out_as_it_is_written() -> None:
    looked = wait("looked", file="./shared/in.csv", until="changes", at_most=9, on_failure="end")
    later = wait("later", time=start["when"])
    judged = {"ask": "bob", "task": f"Right? {answer}", "when": answer["score"] > 3}
    sub = follow("sub", "desk", start, verify=judged, output=Verdict, deadline="2h", default={"score": 0}, attempts=2)
    loud = call("loud", shout, {"text": f"{sub}", "all": [start["n"], 1]}, writes="loud", then="ship")
    quiet = decide("quiet", (~(memory["mood"] == "calm") & (sub["score"] < 3), loud), else_=looked)
    both = (answer["a"] != 1) | answer["b"].holds("missing") | answer["c"].holds("in", [1, 2])
    ship = approve("ship", "human", "Out?", approved=looked, rejected=loud, limit=2)
    asked = ask(
        "asked", "ada", "?", routes=[(both, "end"), ({"field": "tick", "op": "ge", "value": 5}, "end")], else_="end"
    )
    plain = [it.json for it in (looked, later, sub, loud, quiet, ship, asked)]
    assert plain == [
        {"name": "looked", "wait": {"file": "./shared/in.csv", "until": "changes", "at_most": 9}, "on_failure": "end"},
        {"name": "later", "wait": {"time": "{{start.when}}"}},
        {
            "name": "sub",
            "plan": "desk",
            "task": "{{start}}",
            "output": plain[2]["output"],
            "deadline": "2h",
            "default": {"score": 0},
            "attempts": 2,
            "verify": {
                "ask": "bob",
                "task": "Right? {{answer}}",
                "when": {"field": "answer.score", "op": "gt", "value": 3},
            },
        },
        {
            "name": "loud",
            "tool": "shout",
            "args": {"text": "{{steps.sub}}", "all": ["{{start.n}}", 1]},
            "writes": "loud",
            "then": "ship",
        },
        {
            "name": "quiet",
            "routes": [
                {
                    "when": {
                        "all": [
                            {"not": {"field": "memory.mood", "op": "is", "value": "calm"}},
                            {"field": "steps.sub.score", "op": "lt", "value": 3},
                        ]
                    },
                    "to": "loud",
                }
            ],
            "else": "looked",
        },
        {
            "name": "ship",
            "ask": "human",
            "task": "Out?",
            "choose": {"field": "decision", "to": {"approve": "looked", "reject": "loud"}},
            "limit": 2,
        },
        {
            "name": "asked",
            "ask": "ada",
            "task": "?",
            "routes": [
                {
                    "when": {
                        "any": [
                            {"field": "answer.a", "op": "is_not", "value": 1},
                            {"field": "answer.b", "op": "missing"},
                            {"field": "answer.c", "op": "in", "value": [1, 2]},
                        ]
                    },
                    "to": "end",
                },
                {"when": {"field": "tick", "op": "ge", "value": 5}, "to": "end"},
            ],
            "else": "end",
        },
    ]
    assert plain[2]["output"]["required"] == ["score"]
    assert loud.functions == (shout,)


def test_whatever_a_step_can_say_can_be_said_in_python() -> None:
    what_it_does = {"name", "ask", "plan", "tool", "args", "wait", "task", "parallel"}
    in_files = {file_key(field) for field in file_fields(StepDefinition)} - what_it_does
    assert {word.rstrip("_") for word in get_type_hints(StepKeys)} == in_files
    assert {file_key(field) for field in file_fields(StepAction)} >= what_it_does - {"parallel"}


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: ask("a", "ada", "?", then="nowhere"), '"nowhere"'),
        (lambda: ask("a", "ada", f"{previous['x']} {keys['y']}"), 'no step writes "y"'),
        (lambda: ask("a", "ada", "?", verfy={}), 'did you mean "verify"'),  # type: ignore[call-arg]
        (lambda: ask("a", "ada", "?", attempts=99), "at most 20"),
    ],
)
def test_a_plan_that_is_wrong_is_refused_with_its_place(make: Callable[[], PlanStep], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(make())
    said = " ".join(f"{it} {it.hint}" for it in caught.value.problems)
    assert told in said
    assert "plan.json:" in said


def test_a_condition_is_no_truth_of_python() -> None:
    is_late = answer["score"] < 3
    with pytest.raises(TypeError, match="combine conditions"):
        bool(is_late)
    with pytest.raises(TypeError):
        Condition({}) and 1
    with pytest.raises(UsageError, match="got a field"):
        _ = answer["score"] == previous["score"]


def test_what_is_built_runs_its_branch_and_waits_for_its_person(tmp_path: Path) -> None:
    draft = ask("draft", "writer", f"Write about {start}.", limit=3, context=["steps.ship"])
    loud = call("loud", shout, {"text": draft})
    written = plan(draft, loud, approve("ship", "human", loud, rejected=draft), answer=loud)
    org = lemming.build(
        tmp_path / "org",
        agents={"desk": written, "writer": "You write."},
        models={"default": SCRIPTED},
        settings={"tool_files": ["tools/*.py"]},
    )
    desk, writer = load_agent(org, "desk"), load_agent(org, "writer")
    assert (desk.permissions.read_outboxes, desk.permissions.tools) == (["human", "writer"], ["shout"])
    assert (writer.permissions.read_outboxes, writer.schedule.wake) == (["desk"], "addressed")
    assert not [it for it in validate_agents(org, load_config(org), None) if it.severity == "error"]
    write_script(org.base, [{"agent": "writer", "reply": say("bees", kind="response")}] * 2)
    outcome = lemming.ask(org, "desk", "bees", timeout_s=PATIENCE_S)
    assert (outcome.why, outcome.answer) == ("waits_for_asker", None)
    (asked,) = lemming.list_person_inbox(org)
    assert (asked.person, asked.needs) == ("human", "an answer with decision")
    lemming.deny(org, asked)
    assert lemming.wait_for(org, outcome, timeout_s=PATIENCE_S).why == "waits_for_asker"
    (asked,) = lemming.list_person_inbox(org)
    lemming.approve(org, asked.id)
    assert lemming.wait_for(org, outcome.id, timeout_s=PATIENCE_S).value == "BEES"
    assert lemming.list_person_inbox(org) == []


def test_a_step_for_each_item_and_what_a_plan_is_given() -> None:
    look = ask("look", "ada", f"What of {item['name']}, number {number}?", each=start["cities"], at_once=2, most=9)
    told = follow("told", "press", args={"cities": start["cities"], "words": 100})
    asks = {"type": "object", "properties": {"cities": {"type": "array"}}, "required": ["cities"]}
    assert plan(look, told, answer=look, input=asks).as_json() == {
        "steps": [
            {
                "name": "look", "ask": "ada", "task": "What of {{item.name}}, number {{number}}?",
                "each": "start.cities", "at_once": 2, "most": 9,
            },
            {"name": "told", "plan": "press", "args": {"cities": "{{start.cities}}", "words": 100}},
        ],
        "answer": "{{steps.look}}",
        "input": asks,
    }  # fmt: skip


# --- typed answers ---------------------------------------------------------------------------------


@dataclass
class Sorted:
    """What a sorter says of a mail."""

    kind: str
    urgent: bool


@dataclass
class AllSorted:
    """What a plan says of all mails."""

    items: list[Sorted]


def sorting(tmp_path: Path, count: int) -> lemming.Organisation:
    step = ask("sort", "sorter", f"Sort {item}", each=start["mails"], output=Sorted)
    takes = {"type": "object", "properties": {"mails": {"type": "array"}}, "required": ["mails"]}
    org = lemming.build(
        tmp_path / "org",
        agents={"desk": plan(step, answer=step, input=takes), "sorter": "You sort mails."},
        models={"default": SCRIPTED},
    )
    payload = {"kind": "bill", "urgent": True}
    answer = {"outbox_entries": [{"kind": "response", "payload": payload, "tags": []}]}
    rest = {"tool_calls": [], "memory_updates": [], "notes": ""}
    write_script(org.base, [{"agent": "sorter", "reply": {**answer, **rest}}] * count)
    return org


@pytest.mark.long
def test_a_plan_that_sorts_thirty_mails_answers_with_thirty_values(tmp_path: Path) -> None:
    org = sorting(tmp_path, 30)
    mails = [f"mail {number}" for number in range(30)]
    outcome = lemming.ask(org, "desk", "go", fields={"mails": mails}, returns=AllSorted)
    assert outcome.value == AllSorted([Sorted("bill", True)] * 30)


def test_without_a_type_the_values_stand_beside_the_text(tmp_path: Path) -> None:
    outcome = lemming.ask(sorting(tmp_path, 2), "desk", "go", fields={"mails": ["a", "b"]})
    assert [it["kind"] for it in outcome.value["items"]] == ["bill", "bill"]


@pytest.mark.parametrize("text", ["look", "steps.look", "steps.look.text", "member"])
def test_the_name_of_a_step_as_the_answer_of_a_plan_is_refused(text: str) -> None:
    band = parallel("band", ask("member", "ada", "x"))
    with pytest.raises(UsageError, match="answer must refer to the step"):
        plan(ask("look", "ada", "x"), band, answer=text)


def test_the_name_of_a_step_as_the_answer_in_a_file_is_warned_of() -> None:
    steps = {"steps": [{"name": "look", "ask": "ada", "task": "x"}], "answer": "look"}
    (problem,) = validate_plan(parse_plan(dump_pretty(steps), "plan.json").value)
    assert (problem.severity, problem.pointer) == ("warning", "/answer")
    assert '"{{steps.look}}"' in problem.hint
