"""Plans that come with a request: a person approves them first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from asked import ask, tick
from planned import step
from test_in_ticks import answers, model_calls, quiet_org, run

from lemming.messages import read_outbox_entries, send
from lemming.tick.counter import load_tick

PLAN = {"steps": [step("a", "ada"), step("b", "bob", task="{{previous}}")]}


def proposed(base: Path, plan: Any) -> Any:
    ask(base, "desk", "I would do this", author="human", plan=plan)
    tick(base)
    return [entry for entry in read_outbox_entries(base, "desk") if entry.kind == "request"]


def decide(base: Path, request: str, text: str, **fields: Any) -> None:
    payload = {"reply_to": request, "text": text, "target": "desk", **fields}
    send(base, "human", tick=load_tick(base), kind="response", payload=payload, tags=[],
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
