"""Gates hold whichever way a turn is taken: every form of a reply, strategy, tool and question to others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from asked import answers, ask, org_of, prompts, tick
from batch_server import BatchServer
from connected import configure, server
from page_server import serving

from lemming.cli import run
from lemming.engine import run_once
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import SCRIPT_FILE, FrozenClock, journal_lines, make_org, resume, say

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


WRITING: dict[str, Any] = {"reply": say("writing", tool_calls=[{"tool": "file_write", "args": ARGS}])}
DONE: dict[str, Any] = {"reply": say("done, the pin 12 is kept")}
WAYS: dict[str, tuple[str, dict[str, Any], list[dict[str, Any]]]] = {
    "reply": ("default", {"max_steps": 2}, lines(WRITING, DONE)),
    "native": ("native", {"max_steps": 2}, lines({"calls": [{"tool": "file_write", "args": ARGS}], "reply": ""}, DONE)),
    "actions": (
        "small",
        {},
        lines(
            {"reply": {"name": "file_write", "arguments": ARGS}},
            {"reply": {"name": "send", "arguments": {"text": "done, the pin 12 is kept"}}},
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
    assert [it.turns for it in replay_ticks(base, [1])] == [1]
    assert run(["-C", str(base), "verify"]) == 0


def test_what_leaves_a_strategy_that_writes_again_passes_gates_each_time(base: Path) -> None:
    script = lines({"reply": say("a draft, pin 1")}, {"reply": "No: too short."}, {"reply": say("better, pin 2")})
    ada = resume("ada", turn={"strategy": "reflexion", "options": {"rubric": "Is it long?"}})
    make_org(base, ada, script=script, org={"gates": [PINS]})
    run_once(base, clock=FrozenClock())
    said = [entry.payload["text"] for entry in read_outbox_entries(base, "ada")]
    assert said
    assert not any("pin" in text for text in said)
    assert [it.turns for it in replay_ticks(base, [1])] == [1]


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
    assert len(list(replay_ticks(base, [1, 2, 3]))) == 3


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
    script = lines({"reply": say("calling", tool_calls=[{"tool": "long_one", "args": {}}])}, {"reply": say("ok")})
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


def test_each_answer_of_a_turn_that_takes_all_requests_passes_gates_by_itself(tmp_path: Path) -> None:
    told = {"at": "in", "redact": ["pin [0-9]+"], "then": "rewrite"}
    said = {"at": "out", "deny": ["secret"], "then": "block"}
    ada = resume("ada", turn={"take": "all"}, gates=[told, said])
    org = org_of(tmp_path, ada)
    first, second = (ask(org, "ada", text, conversation=text) for text in ("pin 1?", "pin 2?"))
    replies = [
        {"kind": "response", "payload": {"text": text, "reply_to": asked.id}, "tags": []}
        for text, asked in (("a secret", first), ("fine", second))
    ]
    reply = {"outbox_entries": replies, "tool_calls": [], "memory_updates": [], "notes": ""}
    (org / SCRIPT_FILE).write_text(json.dumps({"reply": reply}) + "\n")
    (taken,) = (turn for turn in tick(org).turns if turn.agent == "ada")
    assert answers(org, "ada").keys() == {second.id}
    assert [(it["at"], it["then"]) for it in taken.verdicts] == [("in", "rewrite"), ("in", "rewrite"), ("out", "block")]
    assert prompts(org, 1)["ada"].count("[redacted]?") >= 2
    assert "pin " not in prompts(org, 1)["ada"]


def test_a_request_is_handed_on_only_where_gates_let_it(tmp_path: Path) -> None:
    hands = [{"tool": "hand_to_bob", "args": {"message": "the secret is yours to tell"}}]
    gate = {"at": "out", "deny": ["secret"], "then": "block"}
    reads = {"permissions": {"read_outboxes": ["*"]}}
    ada = resume("ada", team={"hand_to": ["bob"]}, turn={"take": "one"}, gates=[gate], **reads)
    bob = resume("bob", schedule={"wake": "addressed"}, **reads)
    script = [{"agent": "ada", "reply": say("", tool_calls=hands)}, {"agent": "bob", "reply": say("told")}]
    org = org_of(tmp_path, ada, bob, script=script)
    ask(org, "ada")
    turns = [turn for _ in range(2) for turn in tick(org).turns]
    assert ("out", "block") in {(it["at"], it["then"]) for turn in turns for it in turn.verdicts}
    assert [turn.agent for turn in turns if turn.agent == "bob" and turn.calls] == []
    assert "secret" not in json.dumps([entry.payload for entry in read_outbox_entries(org, "ada")])


def test_answers_that_come_in_a_batch_pass_gates(base: Path) -> None:
    batches = BatchServer()
    batches.text = json.dumps(say("the pin 12 is kept", tool_calls=[{"tool": "file_write", "args": ARGS}]))
    options = {"base_url": f"{batches.url}/v1", "batches": True}
    models = {"batchy": {"provider": "openai", "model": "m", "options": options}}
    permissions = {"read_outboxes": [], "tools": ["file_*"], "file_access": FILES}
    ada = resume("ada", model={"key": "batchy"}, permissions=permissions, turn={"max_steps": 1})
    make_org(base, ada, models=models, org={"gates": [NOT_SHARED, PINS]})
    (base / "shared").mkdir()
    batches.start()
    try:
        (taken,) = run_once(base, clock=FrozenClock(), batch=True).turns
    finally:
        batches.stop()
    assert batches.live == []
    assert {(it["at"], it["then"]) for it in taken.verdicts} == {("call", "block"), ("out", "rewrite")}
    assert not (base / "shared/x").exists()
    assert [it.payload["text"] for it in read_outbox_entries(base, "ada")] == ["the [redacted] is kept"]


def test_each_step_of_a_plan_that_an_agent_makes_itself_passes_gates(base: Path) -> None:
    script = [
        {"contains": "First make a plan", "reply": {"goal": "write", "steps": ["write it"]}},
        {"contains": "Results of your tool calls", "reply": say("it did not work")},
        {"contains": "take step 1,", **WRITING},
        {"contains": "Sum up", **DONE},
    ]
    ada = resume(
        "ada",
        permissions={"tools": ["file_*"], "file_access": FILES},
        turn={"strategy": "plan_execute", "max_steps": 4},
    )
    make_org(base, ada, script=script, org={"gates": [NOT_SHARED, PINS]})
    (base / "shared").mkdir()
    (taken,) = run_once(base, clock=FrozenClock()).turns
    assert [it["outcome"] for it in taken.tools] == ["refused"]
    assert not (base / "shared/x").exists()
    said = [it.payload["text"] for it in read_outbox_entries(base, "ada")]
    assert said == ["done, the [redacted] is kept"]


WITHHELD = {"at": "result", "deny": ["the end"], "then": "block"}


def assert_withheld(base: Path, tool: str) -> None:
    """Require that the journal has no more of what a tool gave than that it is withheld."""
    (turn,) = run_once(base, clock=FrozenClock()).turns
    (done,) = [it for it in journal_lines(base, 1) if it["type"] == "tool_finished"]
    assert done["tool"] == tool
    assert done["output"].startswith("[withheld: a gate does not let it pass")
    assert [(it["at"], it["then"]) for it in turn.verdicts] == [("result", "block")]


def calling(base: Path, tool: str, args: dict[str, Any], **org: Any) -> None:
    """Make an organisation in which ada calls a tool once, and a gate at its result."""
    script = [{"reply": say("calling", tool_calls=[{"tool": tool, "args": args}])}]
    make_org(base, resume("ada", permissions={"tools": [tool]}), script=script, org={"gates": [WITHHELD], **org})


@pytest.mark.long
def test_the_whole_result_of_an_mcp_server_is_looked_at(base: Path) -> None:
    pytest.importorskip("mcp")
    calling(base, "mcp.mis.huge", {"megabytes": 0.5})
    configure(base, {"mis": server()})
    assert_withheld(base, "mcp.mis.huge")


def test_the_whole_page_of_a_server_is_looked_at(base: Path) -> None:
    with serving() as pages:
        pages.put("/", b"x" * 300_000 + b" the end")
        host = f"127.0.0.1:{pages.port}"
        calling(base, "http_get", {"url": pages.url()}, http={"hosts": [host], "private_hosts": [host]})
        assert_withheld(base, "http_get")


def test_the_whole_of_a_documents_part_is_looked_at(base: Path) -> None:
    pytest.importorskip("markdownify")
    calling(base, "read_document", {"path": "a.html"})
    (base / "agents/ada/workspace").mkdir()
    text = "☃" * 20_000  # 60 kB
    (base / "agents/ada/workspace/a.html").write_text(f"<!DOCTYPE html><html><p>{text} the end</p></html>")
    assert_withheld(base, "read_document")
