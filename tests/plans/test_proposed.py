"""Plans that come with a request: a person approves them first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from asked import ask, tick
from planned import step
from test_in_ticks import SCRIPT, answers, model_calls, quiet_org, run

from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.messages import read_outbox_entries, write_person_entry
from lemming.kernel.tick.tick_counter import load_tick
from lemming.testing import resume, say, write_script

PLAN = {"steps": [step("a", "ada"), step("b", "bob", task="{{previous}}")]}


def proposed(base: Path, plan: Any) -> Any:
    ask(base, "desk", "I would do this", author="human", plan=plan)
    tick(base)
    return [entry for entry in read_outbox_entries(base, "desk") if entry.kind == "request"]


def decide(base: Path, request: str, text: str, **fields: Any) -> None:
    payload = {"reply_to": request, "text": text, "target": "desk", **fields}
    write_person_entry(base, "human", tick=load_tick(base), kind="response", payload=payload, tags=[],
         created_at="2026-01-01T00:00:00Z")  # fmt: skip


def test_a_person_is_shown_the_whole_plan_and_nothing_is_done_before_an_answer(tmp_path: Path) -> None:
    base = quiet_org(tmp_path, proposals="human")
    question = proposed(base, PLAN)[0]
    assert question.payload["target"] == "human"
    assert "1. a: asks ada" in question.payload["text"]
    assert '"ask": "bob"' in question.payload["text"]
    assert model_calls(run(base, 5)) == []
    decide(base, question.id, "approve")
    assert model_calls(run(base, 5)) == ["ada", "bob"]
    assert answers(base)[0]["text"] == "bob says"


def test_a_plan_that_is_rejected_is_never_followed(tmp_path: Path) -> None:
    for text, fields in (("too dear", {"decision": "reject"}), ("reject", {}), ("well, perhaps", {})):
        base = quiet_org(tmp_path / text, proposals="human")
        decide(base, proposed(base, PLAN)[0].id, text, **fields)
        assert model_calls(run(base, 4)) == []
        assert answers(base)[0]["status"] == "failed"


def test_a_plan_that_is_not_sound_is_refused_and_nobody_is_asked(tmp_path: Path) -> None:
    for wrong in ({"steps": []}, {"steps": [step("a", "ada", then="gone")]}, "no plan", {"stepz": []}):
        base = quiet_org(tmp_path / str(len(str(wrong))), proposals="human")
        assert proposed(base, wrong) == []
        assert answers(base)[0]["status"] == "refused"


def test_a_plan_in_a_request_is_nothing_to_an_agent_that_takes_none(tmp_path: Path) -> None:
    base = quiet_org(tmp_path, step("own", "cyd"))
    proposed(base, PLAN)
    assert model_calls(run(base, 4)) == ["cyd"]


def org_with_a_proposer(base: Path, plan: Any, **args: Any) -> Path:
    """Make an organisation in which eve, asked, proposes a plan to the desk."""
    quiet_org(base, proposals="human")
    call = {"tool": "plan_propose", "args": {"agent": "desk", "plan": plan, "text": "so that it is done", **args}}
    said = {"outbox_entries": [], "tool_calls": [call], "memory_updates": [], "notes": ""}
    script = [
        {"agent": "eve", "contains": "bob says", "reply": say("it was done", kind="response")},
        {"agent": "eve", "contains": "plan_propose: ", "reply": say("it cannot be done", kind="response")},
        {"agent": "eve", "reply": said},
        *SCRIPT,
    ]
    write_script(base, script)
    may = {"read_outboxes": ["human", "desk"], "tools": ["plan_propose"]}
    eve = resume("eve", permissions=may, schedule={"wake": "addressed"}, turn={"take": "one"})
    fs.write_atomic(base, "agents/eve/resume.json", dump_pretty(eve))
    return base


def test_an_agent_proposes_a_plan_and_hears_what_came_of_it(tmp_path: Path) -> None:
    base = org_with_a_proposer(tmp_path, PLAN)
    ask(base, "eve", "see to it")
    assert model_calls(run(base, 4)) == ["eve"]
    question = next(entry for entry in read_outbox_entries(base, "desk") if entry.kind == "request")
    assert "so that it is done" in question.payload["text"]
    decide(base, question.id, "yes", decision="approve")
    assert model_calls(run(base, 8)) == ["ada", "bob", "eve"]
    assert answers(base, "eve")[0]["text"] == "it was done"


def test_a_plan_that_nobody_could_follow_is_not_even_shown_to_a_person(tmp_path: Path) -> None:
    wrong = {
        "unknown": ({"steps": [step("a", "nobody")]}, {}),
        "unsound": ({"steps": [step("a", "ada", then="b")]}, {}),
        "forbidden": ({"steps": [{"name": "a", "tool": "create_agent"}]}, {}),
        "no follower": (PLAN, {"agent": "ada"}),
    }
    for name, (plan, args) in wrong.items():
        base = org_with_a_proposer(tmp_path / name, plan, **args)
        ask(base, "eve", "see to it")
        run(base, 4)
        assert answers(base, "eve")[0]["text"] == "it cannot be done", name
        assert read_outbox_entries(base, "desk") == []


def test_a_plan_that_is_proposed_beside_the_answer_is_put_to_the_person(tmp_path: Path) -> None:
    base = org_with_a_proposer(tmp_path, PLAN)
    script = [json.loads(line) for line in (base / "config/answers.jsonl").read_text().splitlines()]
    script[2]["reply"] |= {"outbox_entries": say("I proposed it", kind="response")["outbox_entries"]}
    write_script(base, script)
    ask(base, "eve", "see to it")
    assert model_calls(run(base, 4)) == ["eve"]
    question = next(entry for entry in read_outbox_entries(base, "desk") if entry.kind == "request")
    decide(base, question.id, "yes", decision="approve")
    assert model_calls(run(base, 8)) == ["ada", "bob", "eve"]
