"""The prompt form "tools": one action a step, mapped to the four keys of a reply."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lemming.engine import run_once
from lemming.kernel.base.contract import parse_reply
from lemming.kernel.memory import load_memory
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.turn.actions import action_schema, as_reply
from lemming.testing import Crash, FrozenClock, crash_at, make_org, resume, tree
from lemming.timeline.record import read_tick
from lemming.timeline.replay.replay import replay

SMALL = {"provider": "scripted", "options": {"file": "config/answers.jsonl"}, "prompt": "tools"}


def act(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def org(base: Path, *script: dict[str, Any], **blocks: Any) -> Path:
    """Make an organisation of one agent whose model acts step by step."""
    permissions = {"tools": ["file_read", "file_write"]}
    ada = resume("ada", model={"key": "small"}, permissions=permissions, **blocks)
    made = make_org(base, ada, models={"small": SMALL}, script=[*script])
    (base / "agents/ada/workspace").mkdir(parents=True)
    (base / "agents/ada/workspace/n.txt").write_text("21")
    return made


WRITE = json.dumps(act("file_write", path="out.txt", content="42"))
STEPS = (
    {"step": 0, "reply": act("file_read", path="n.txt")},
    {
        "step": 1,
        "reply": "<tool_call>\n"
        + json.dumps(act("file_write", path="out.txt", content="42"))
        + "\n</tool_call>",
    },
    {"step": 2, "reply": "```json\n" + json.dumps(act("memory_write", key="last", value="42")) + "\n```"},
    {"step": 3, "reply": act("send_message", text="it is 42")},
)


def test_a_small_model_reads_computes_writes_remembers_and_tells(base: Path) -> None:
    made = org(base, *STEPS)
    (turn,) = run_once(made, clock=FrozenClock()).turns
    assert (turn.status, turn.calls) == ("done", 4)
    assert [entry["kind"] for entry in turn.entries] == ["message"]
    assert (base / "agents/ada/workspace/out.txt").read_text() == "42"
    assert load_memory(base, "ada", "last") == "42"
    assert [replayed.turns for replayed in replay(made, [1])] == [1]


def test_a_crash_at_any_point_comes_to_the_same_files(tmp_path: Path) -> None:
    run_once(org(tmp_path / "whole", *STEPS), clock=FrozenClock())
    wanted = tree(tmp_path / "whole")
    for number in range(0, 40, 3):
        base = org(tmp_path / str(number), *STEPS)
        try:
            with crash_at(number):
                run_once(base, clock=FrozenClock())
        except Crash:
            run_once(base, clock=FrozenClock())
        assert tree(base) == wanted


def test_the_prompt_is_in_the_familys_own_format(base: Path) -> None:
    made = org(base, {"reply": act("done")})
    run_once(made, clock=FrozenClock())
    system, situation = read_tick(Organisation.at(made), 1).started["ada"].prompt
    assert "<tools>" in system["content"]
    listed = [json.loads(line) for line in system["content"].splitlines() if line.startswith('{"type"')]
    names = [one["function"]["name"] for one in listed]
    assert names == ["file_read", "file_write", "send_message", "memory_write", "done"]
    assert situation["content"] == "(nothing new)"


def test_the_schema_is_one_action_with_the_arguments_of_its_tool() -> None:
    parameters = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    tool = {"name": "file_read", "description": "", "parameters": parameters}
    (only,) = action_schema([tool])["anyOf"]
    assert only["properties"] == {"name": {"const": "file_read"}, "arguments": parameters}
    assert only["required"] == ["name", "arguments"]


def test_done_ends_the_turn_with_nothing_written(base: Path) -> None:
    (turn,) = run_once(org(base, {"reply": act("done")}), clock=FrozenClock()).turns
    assert (turn.status, turn.calls, list(turn.entries)) == ("done", 1, [])


def test_steps_end_at_eight_where_nothing_else_is_said(base: Path) -> None:
    script = [{"step": step, "reply": act("file_read", path=f"{step}.txt")} for step in range(20)]
    (turn,) = run_once(org(base, *script), clock=FrozenClock()).turns
    assert turn.calls == 8


def test_a_tool_that_it_may_not_call_is_refused_as_ever(base: Path) -> None:
    script = [{"step": 0, "reply": act("shell", command="ls")}, {"reply": act("done")}]
    (turn,) = run_once(org(base, *script), clock=FrozenClock()).turns
    (used,) = turn.tools
    assert (used["tool"], used["success"]) == ("shell", False)


@pytest.mark.parametrize(
    "text",
    [
        "Hello there!",
        "{}",
        "[]",
        '{"name": 7}',
        '{"name": "done"',
        "<tool_call>",
        "```\n```",
        "",
        "null",
        '"done"',
    ],
)
def test_what_is_no_action_stays_what_it_is(text: str) -> None:
    assert as_reply(text, ["message"]) == text


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ('{"name": "x"}', [("x", {})]),
        ('{"name": "x", "arguments": null}', [("x", {})]),
        ('{"name": "x", "parameters": {"a": 1}}', [("x", {"a": 1})]),
        ('I will look.\n<tool_call>{"name": "x", "arguments": {}}</tool_call>', [("x", {})]),
        ('```json\n{"name": "x", "arguments": {}}\n```\nDone.', [("x", {})]),
    ],
)
def test_an_action_is_found_bare_fenced_and_in_tags(text: str, calls: list[Any]) -> None:
    reply = parse_reply(as_reply(text, ["message"]), kinds=["message"])
    assert [(call.tool, call.args) for call in reply.tool_calls] == calls


def test_a_reply_of_four_keys_is_understood_too(base: Path) -> None:
    entry = {"kind": "message", "payload": {"text": "hi"}}
    (turn,) = run_once(org(base, {"reply": {"outbox_entries": [entry]}}), clock=FrozenClock()).turns
    assert len(turn.entries) == 1
