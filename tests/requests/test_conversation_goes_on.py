"""A turn that waited for another agent goes on with its conversation: the answer is its call's result."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asked import PEOPLE, answers, ask, person, tick
from loopback import one_certificate
from native_server import NativeServer, messages
from rule_model import RuleModel

from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.journal.ledger import read_state
from lemming.testing import journal_lines, make_org, resume, say

QUIET = {"schedule": {"wake": "addressed"}, "turn": {"take": "one"}}
WHISPER = """
from lemming.tools import tool

@tool(repeatable=True, process=False, on_error="skip")
def whisper() -> str:
    raise ValueError("nobody hears")
"""
ASKS = ("ask_ann", {"message": "a?"})


@pytest.fixture(scope="module", autouse=True)
def _one_certificate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with one_certificate(tmp_path_factory.mktemp("certificates")):
        yield


@pytest.fixture
def model() -> Iterator[RuleModel]:
    """A model that asks ann once, then answers with what she said."""
    server = RuleModel(wants=[ASKS])
    server.start()
    yield server
    server.stop()


def make(base: Path, model: RuleModel, *others: dict[str, Any], team: Any = None, **models: Any) -> Path:
    desk = resume("desk", model={"key": "rule", "fallback": [*models]}, team=team or {"ask": ["ann"]}, **QUIET)
    desk["permissions"] = {"read_outboxes": ["*"], "tools": ["whisper"]}
    entry = {
        "provider": "openai", "model": "m", "options": {"base_url": f"{model.url}/v1"}, "tools": "native",
        "attempts": 1,
    }  # fmt: skip
    script = [
        {"agent": "ann", "contains": "hand it on", "reply": handing_on("bob")},
        {"reply": say("it is 7", kind="response")},
    ]
    return make_org(
        base,
        person(),
        desk,
        *(others or [resume("ann", **QUIET)]),
        models={"rule": entry, **PEOPLE, **models},
        script=script,
        org={"tool_files": ["tools/*.py"]},
    )


def handing_on(name: str) -> dict[str, Any]:
    call = {"tool": f"hand_to_{name}", "args": {"message": "yours"}}
    return {"outbox_entries": [], "tool_calls": [call]}


def test_an_answer_of_another_agent_is_the_result_of_the_call_that_asked(tmp_path: Path, model: RuleModel) -> None:
    org = make(tmp_path, model)
    request = ask(org, "desk")
    for _ in range(2):
        tick(org)
    assert answers(org, "desk")[request.id]["text"] == "Done: it is 7"
    assert model.sent[-1][2:] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "id0", "type": "function", "function": {"name": "ask_ann", "arguments": '{"message": "a?"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "id0", "content": "it is 7"},
    ]
    assert [it.tick for it in replay_ticks(org, [1, 2])] == [1, 2]


def test_of_what_was_handed_on_the_answer_comes_to_the_call_that_asked(tmp_path: Path, model: RuleModel) -> None:
    model.wants = [("ask_ann", {"message": "hand it on"})]
    may = {"permissions": {"read_outboxes": ["*"], "tools": []}}
    ann = resume("ann", team={"hand_to": ["bob"]}, **may, **QUIET)
    org = make(tmp_path, model, ann, resume("bob", **may, **QUIET))
    request = ask(org, "desk")
    for _ in range(4):
        tick(org)
    assert answers(org, "desk")[request.id]["text"] == "Done: it is 7"


def test_another_provider_goes_on_where_the_first_is_gone(tmp_path: Path, model: RuleModel) -> None:
    other = NativeServer(answers=[messages(to_line(say("seven", kind="response")))])
    other.start()
    entry = {"provider": "anthropic", "model": "m", "options": {"base_url": other.url}, "tools": "native"}
    org = make(tmp_path, model, other=entry)
    request = ask(org, "desk")
    model.fails_from = 1
    for _ in range(2):
        tick(org)
    other.stop()
    assert answers(org, "desk")[request.id]["text"] == "seven"
    called, given = other.received[-1]["messages"][1:]
    assert [it["type"] for it in called["content"]] == ["tool_use"]
    assert (given["role"], given["content"][0]["tool_use_id"]) == ("user", called["content"][0]["id"])
    assert given["content"][0]["content"] == "it is 7"


def test_a_model_that_calls_no_tools_any_more_begins_anew_with_the_results(tmp_path: Path, model: RuleModel) -> None:
    org = make(tmp_path, model)
    ask(org, "desk")
    tick(org)
    assert read_state(org, "desk").requests[0].dialogue
    path = org / "config/models.json"
    path.write_text(path.read_text().replace('"native"', '"contract"'))
    tick(org)
    assert [it["role"] for it in model.sent[-1]] == ["system", "user"]
    assert "it is 7" in model.sent[-1][1]["content"]


def test_an_answer_to_an_entry_stands_behind_what_was_said_once(tmp_path: Path) -> None:
    asks = {"outbox_entries": [{"kind": "request", "payload": {"text": "a?", "target": "ann"}, "tags": []}]}
    script = [
        {"agent": "desk", "contains": "it is 7", "reply": {**asks, "notes": "once more"}},
        {"agent": "desk", "contains": "it is 8", "reply": say("fifteen", kind="response")},
        {"agent": "desk", "reply": asks},
        {"agent": "ann", "tick": 2, "reply": say("it is 7", kind="response")},
        {"agent": "ann", "reply": say("it is 8", kind="response")},
    ]
    org = make_org(tmp_path, person(), resume("desk", **QUIET), resume("ann", **QUIET), models=PEOPLE, script=script)
    request = ask(org, "desk")
    for _ in range(3):
        tick(org)
    assert answers(org, "desk")[request.id]["text"] == "fifteen"
    start = next(it for it in journal_lines(org, 3) if it["type"] == "turn_started" and it["agent"] == "desk")
    assert [it["role"] for it in start["dialogue"]] == ["assistant", "user"] * 2
    assert "it is 7" not in start["prompt"][-1]["content"]
    assert ["it is 7" in it["content"] for it in start["dialogue"]] == [False, True, False, False]
    assert "it is 8" in start["dialogue"][-1]["content"]


def test_a_result_that_the_model_is_not_told_stays_untold(tmp_path: Path, model: RuleModel) -> None:
    model.wants, model.together = [("whisper", {}), ASKS], True
    org = make(tmp_path, model)
    (org / "tools").mkdir()
    (org / "tools/mine.py").write_text(WHISPER)
    request = ask(org, "desk")
    for _ in range(2):
        tick(org)
    assert answers(org, "desk")[request.id]["text"] == "Done: (no result) and it is 7"
