"""Gates hold whichever way a turn is taken: every form of a reply, strategy, tool and question to others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lemming.cli import run
from lemming.engine import run_once
from lemming.messages import read_outbox_entries
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say
from lemming.timeline.replay.replay import replay

FILES = {"allow_read": ["./shared", "./workspace"], "allow_write": ["./shared", "./workspace"]}
MODELS = {
    "native": {"provider": "scripted", "options": {"file": "config/answers.jsonl"}, "tools": "native"},
    "small": {"provider": "scripted", "options": {"file": "config/answers.jsonl"}, "prompt": "tools"},
    "default": {"provider": "scripted", "options": {"file": "config/answers.jsonl"}},
}
NOT_SHARED = {"at": "call", "when": {"field": "own", "op": "is", "value": False}, "then": "block"}
PINS = {"at": "out", "redact": ["pin [0-9]+"], "then": "rewrite"}
ARGS = {"path": "shared/x", "content": "y"}


def lines(*steps: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"step": step, **line} for step, line in enumerate(steps)]


WRITING = {"reply": say("writing", tool_calls=[{"tool": "file_write", "args": ARGS}])}
DONE = {"reply": say("done, the pin 12 is kept")}
WAYS: dict[str, tuple[str, dict[str, Any], list[dict[str, Any]]]] = {
    "reply": ("default", {"max_steps": 2}, lines(WRITING, DONE)),
    "native": (
        "native",
        {"max_steps": 2},
        lines({"calls": [{"tool": "file_write", "args": ARGS}], "reply": ""}, DONE),
    ),
    "actions": (
        "small",
        {},
        lines(
            {"reply": {"name": "file_write", "arguments": ARGS}},
            {"reply": {"name": "send_message", "arguments": {"text": "done, the pin 12 is kept"}}},
        ),
    ),
    "react": ("default", {"strategy": "react"}, lines(WRITING, DONE)),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_call_and_an_entry_pass_gates_whatever_form_they_have(base: Path, way: str) -> None:
    key, turn, script = WAYS[way]
    permissions = {"tools": ["file_*"], "file_access": FILES}
    ada = resume("ada", model={"key": key}, permissions=permissions, turn=turn)
    make_org(base, ada, models=MODELS, script=script, org={"gates": [NOT_SHARED, PINS]})
    (base / "shared").mkdir()
    (taken,) = run_once(base, clock=FrozenClock()).turns
    assert [it["outcome"] for it in taken.tools] == ["refused"]
    assert not (base / "shared/x").exists()
    said = [entry.payload["text"] for entry in read_outbox_entries(base, "ada")]
    assert "done, the [redacted] is kept" in said
    assert {(it["at"], it["then"]) for it in taken.verdicts} == {("call", "block"), ("out", "rewrite")}
    assert [it.turns for it in replay(base, [1])] == [1]
    assert run(["-C", str(base), "verify"]) == 0


def test_what_leaves_a_strategy_that_writes_again_passes_gates_each_time(base: Path) -> None:
    script = lines(
        {"reply": say("a draft, pin 1")}, {"reply": "No: too short."}, {"reply": say("better, pin 2")}
    )
    ada = resume("ada", turn={"strategy": "reflexion", "options": {"rubric": "Is it long?"}})
    make_org(base, ada, script=script, org={"gates": [PINS]})
    run_once(base, clock=FrozenClock())
    said = [entry.payload["text"] for entry in read_outbox_entries(base, "ada")]
    assert said
    assert not any("pin" in text for text in said)
    assert [it.turns for it in replay(base, [1])] == [1]


def test_a_question_to_the_team_is_an_entry_that_gates_see(base: Path) -> None:
    gate = {
        "at": "out",
        "when": {"all": [
            {"field": "kind", "op": "is", "value": "request"},
            {"field": "target", "op": "is", "value": "bob"},
        ]},
        "deny": ["secret"],
        "then": "block",
        "because": "bob is not told that",
    }  # fmt: skip
    asks = [{"tool": "ask_bob", "args": {"message": text}} for text in ("the secret?", "the time?")]
    script = [{"agent": "ada", "tick": 1, "reply": say("asking", tool_calls=asks)}, {"reply": say("well")}]
    reads = {"permissions": {"read_outboxes": ["*"]}}
    ada = resume("ada", team={"ask": ["bob"]}, **reads)
    make_org(base, ada, resume("bob", **reads), script=script, org={"gates": [gate]})
    taken = next(it for it in run_once(base, clock=FrozenClock()).turns if it.agent == "ada")
    asked = [it.payload for it in read_outbox_entries(base, "ada") if it.kind == "request"]
    assert [json.dumps(it).count("secret") for it in asked] == [0]
    assert [(it["then"], it["why"]) for it in taken.verdicts] == [("block", "bob is not told that")]
    for _ in range(2):
        run_once(base, clock=FrozenClock())
    assert len(list(replay(base, [1, 2, 3]))) == 3


def test_what_an_answer_to_a_question_says_passes_gates_before_it_is_shown(base: Path) -> None:
    gate = {"at": "in", "when": {"field": "from", "op": "is", "value": "bob"}, "redact": ["pin [0-9]+"], "then": "rewrite"}  # fmt: skip # noqa: E501
    asks = [{"tool": "ask_bob", "args": {"message": "which?"}}]
    script = [
        {"agent": "ada", "tick": 1, "reply": say("asking", tool_calls=asks)},
        {"agent": "bob", "reply": say("it is pin 77", kind="response")},
        {"reply": say("well")},
    ]
    reads = {"permissions": {"read_outboxes": ["*"]}}
    make_org(base, resume("ada", team={"ask": ["bob"]}, **reads), resume("bob", **reads), script=script, org={"gates": [gate]})  # fmt: skip # noqa: E501
    for _ in range(3):
        run_once(base, clock=FrozenClock())
    shown = [
        json.dumps(it["prompt"])
        for tick in (2, 3)
        for it in journal_lines(base, tick)
        if it["type"] == "turn_started" and it["agent"] == "ada"
    ]
    assert any("[redacted]" in prompt for prompt in shown)
    assert not any("pin 77" in prompt for prompt in shown)


LONG = '''
from lemming.tools import tool

@tool
def long_one() -> str:
    """Give much."""
    return "x" * 300_000 + " SECRET"
'''


@pytest.mark.parametrize("then", ["block", "rewrite"])
def test_the_whole_result_of_a_function_is_looked_at_before_it_is_cut_and_kept(base: Path, then: str) -> None:
    gate = {"at": "result", "redact" if then == "rewrite" else "deny": ["SECRE[T]"], "then": then}
    script = lines(
        {"reply": say("calling", tool_calls=[{"tool": "long_one", "args": {}}])}, {"reply": say("ok")}
    )
    ada = resume("ada", permissions={"tools": ["long_one"]}, turn={"max_steps": 2})
    make_org(base, ada, script=script, org={"gates": [gate], "tool_files": ["tools/*.py"]})
    (base / "tools").mkdir()
    (base / "tools/long.py").write_text(LONG)
    (taken,) = run_once(base, clock=FrozenClock()).turns
    assert [(it["at"], it["then"]) for it in taken.verdicts] == [("result", then)]
    kept = [*(base / "agents/ada/workspace").rglob("*.txt")]
    assert len(kept) == (then == "rewrite")
    assert not any("SECRET" in file.read_text() for file in kept)
    (done,) = [it for it in journal_lines(base, 1) if it["type"] == "tool_finished"]
    assert "SECRET" not in json.dumps(done)
