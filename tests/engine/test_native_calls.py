"""Tools that a backend calls itself: told of by their schemas, answered with calls, shown each result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest

from lemming.engine import run_once
from lemming.kernel.base.errors import RequestRejected
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.providers import LLMProvider, Message, Reply, Request, register_provider
from lemming.kernel.tools import Tool, ToolRegistry, ToolResult
from lemming.testing import Crash as Killed
from lemming.testing import FrozenClock, crash_at, journal_lines, make_org, resume, say, tree

NATIVE = {"provider": "scripted", "options": {"file": "config/answers.jsonl"}, "tools": "native"}
LIST = {"tool": "file_list", "args": {}}
KEYS = {"tool": "memory_read", "args": {}}


def org(base: Path, *lines: dict[str, Any], **turn: Any) -> Path:
    """Make an organisation of one agent whose backend calls tools itself."""
    limits = {"max_steps": 3, **turn}
    ada = resume("ada", model={"key": "native"}, permissions={"tools": ["file_list"]}, turn=limits)
    return make_org(base, ada, script=[*lines], models={"native": NATIVE})


class Overheard(LLMProvider):
    """A backend that keeps what it is asked."""

    takes_tools = prefers_tools = True
    heard: ClassVar[list[list[Message]]] = []
    replies: ClassVar[list[Reply]] = []

    def call(self, model_name: str, messages: list[Message], temperature: float | None, **_: Any) -> str:
        """Not used."""
        raise NotImplementedError

    def complete(self, request: Request) -> Reply:
        """Give the next reply."""
        self.heard.append([dict(message) for message in request.messages])
        return self.replies[len(self.heard) - 1]


@pytest.fixture
def overheard(base: Path) -> Path:
    """Return an organisation whose backend keeps what it is asked."""
    Overheard.heard.clear()
    register_provider("overheard", Overheard)
    ada = resume("ada", model={"key": "o"}, permissions={"tools": ["file_list"]}, turn={"max_steps": 3})
    return make_org(base, ada, models={"o": {"provider": "overheard"}})


def calling(*calls: dict[str, Any], text: str = "", **more: Any) -> Reply:
    """Return a reply with calls."""
    made = [{"id": f"id-{place}", **call} for place, call in enumerate(calls)]
    return Reply(text, calls=tuple(made), **more)


def test_the_backend_is_told_of_tools_by_their_schemas_and_the_text_is_not(overheard: Path) -> None:
    Overheard.replies[:] = [Reply(json.dumps(say("done")))]
    run_once(overheard)
    system, situation = Overheard.heard[0]
    told = {tool["name"]: tool for tool in system["tools"]}
    assert told["file_list"]["parameters"]["properties"]["path"]["default"] == "."
    assert "file_list" not in system["content"]
    assert "- Call tools" not in system["content"]
    assert "tool_calls" not in situation["content"]


def test_each_of_its_calls_has_its_result_as_a_message(overheard: Path) -> None:
    Overheard.replies[:] = [
        calling(LIST, KEYS, text="Let me look.", kept=[{"signed": "x"}]),
        Reply(json.dumps(say("done"))),
    ]
    (turn,) = run_once(overheard).turns
    said, *results = Overheard.heard[1][2:]
    assert (said["content"], [call["tool"] for call in said["calls"]]) == ("Let me look.", ["file_list", "memory_read"])
    assert said["kept"] == [{"signed": "x"}]
    assert [(r["role"], r["call"], r["content"], r["success"]) for r in results] == [
        ("tool", "id-0", "(empty)", True),
        ("tool", "id-1", "(no memories yet)", True),
    ]
    assert (turn.status, turn.end, turn.calls, turn.notes) == ("done", "done", 2, "Let me look.")


def test_wrong_calls_have_results_that_say_what_is_wrong(overheard: Path) -> None:
    Overheard.replies[:] = [
        calling(
            {"tool": "file_lits", "args": {}},
            {"tool": "file_list", "args": '{"path": "no'},
            {"tool": "shell", "args": {}},
        ),
        Reply(json.dumps(say("done"))),
    ]
    (turn,) = run_once(overheard).turns
    assert [use["outcome"] for use in turn.tools] == ["not_found", "invalid_args", "denied"]
    results = [message for message in Overheard.heard[1] if message["role"] == "tool"]
    assert [result["success"] for result in results] == [False, False, False]
    assert "file_list" in results[0]["content"]


@pytest.mark.parametrize(("limits", "most"), [({}, 64), ({"max_tool_calls": 3}, 3)])
def test_calls_beyond_the_limit_are_not_sent_back_and_the_model_is_told(
    overheard: Path, limits: dict[str, int], most: int
) -> None:
    ada = resume("ada", model={"key": "o"}, turn={"max_steps": 3, **limits})
    make_org(overheard, ada, models={"o": {"provider": "overheard"}})
    Overheard.replies[:] = [calling(*[KEYS] * 200), Reply(json.dumps(say("done")))]
    (turn,) = run_once(overheard).turns
    answer = next(message for message in Overheard.heard[1] if message["role"] == "assistant")
    results = [message for message in Overheard.heard[1] if message["role"] == "tool"]
    left = f"tool_calls: {200 - most} of 200 were left out, the limit is {most} (turn.max_tool_calls)"
    assert (len(answer["calls"]), len(results)) == (most, most)
    assert Overheard.heard[1][-1]["content"] == f"In your last reply: {left}"
    assert f"left out: {left}" in turn.remarks


@pytest.mark.parametrize(
    ("org_says", "calls", "status"), [({}, 2, "done"), ({"defaults": {"turn": {"max_steps": 1}}}, 1, "waiting")]
)
def test_a_model_that_takes_tools_goes_on_with_their_results_unless_somebody_says_otherwise(
    base: Path, org_says: dict[str, Any], calls: int, status: str
) -> None:
    ada = resume("ada", model={"key": "native"}, permissions={"tools": ["file_list"]})
    make_org(
        base,
        ada,
        script=[{"step": 0, "calls": [LIST]}, {"reply": say("done")}],
        models={"native": NATIVE},
        org=org_says,
    )
    (turn,) = run_once(base).turns
    assert (turn.calls, turn.status) == (calls, status)


def test_the_results_of_the_last_step_are_shown_in_the_next_turn(base: Path) -> None:
    org(base, {"calls": [LIST]}, max_steps=1)
    (turn,) = run_once(base).turns
    assert (turn.status, turn.end) == ("waiting", "step_limit")
    assert [result["tool"] for result in read_state(base, "ada").results] == ["file_list"]


def test_calls_and_thoughts_stand_in_the_journal_and_an_interrupted_turn_is_taken_again(tmp_path: Path) -> None:
    lines = [
        {"step": 0, "calls": [{"tool": "memory_write", "args": {"key": "a", "value": 1}}, KEYS], "thinking": "hm"},
        {"reply": say("done")},
    ]
    whole = org(tmp_path / "whole", *lines)
    run_once(whole, clock=FrozenClock())
    replied = next(record for record in journal_lines(whole, 1) if record["type"] == "model_replied")
    assert (replied["thinking"], [call["tool"] for call in replied["calls"]]) == ("hm", ["memory_write", "memory_read"])
    for number in (6, 9, 12):
        base = org(tmp_path / str(number), *lines)
        with pytest.raises(Killed), crash_at(number):
            run_once(base, clock=FrozenClock())
        run_once(base, clock=FrozenClock())
        assert tree(base) == tree(whole)


def test_an_entry_whose_backend_takes_no_tools_is_told_so(base: Path) -> None:
    models = {"brief": {**NATIVE, "prompt": "brief"}}
    make_org(base, resume("ada", model={"key": "brief"}), models=models)
    (turn,) = run_once(base).turns
    assert turn.status == "failed"
    assert 'cannot use "tools": "native": prompt is "brief"' in turn.reason


def test_a_fallback_that_calls_no_tools_itself_is_told_of_them_in_words(overheard: Path) -> None:
    class Down(Overheard):
        """A backend that answers once, and is down then."""

        def complete(self, request: Request) -> Reply:
            """Give the first reply, and nothing after it."""
            if request.step:
                raise RequestRejected("down")
            return super().complete(request)

    class Plain(Overheard):
        """A backend that calls no tools itself."""

        takes_tools = prefers_tools = False

    register_provider("down", Down)
    register_provider("plain", Plain)
    ada = resume("ada", model={"key": "d", "fallback": ["p"]}, turn={"max_steps": 3})
    make_org(overheard, ada, models={"d": {"provider": "down", "prompt": "full"}, "p": {"provider": "plain"}})
    call = json.dumps({"tool_calls": [KEYS]})
    Overheard.replies[:] = [calling(KEYS), Reply(call), Reply(json.dumps(say("done")))]
    (turn,) = run_once(overheard).turns
    told, *_, result = Overheard.heard[1]
    assert {key for message in Overheard.heard[1] for key in message} == {"role", "content"}
    assert "memory_read: Read one of your memories" in told["content"]
    assert result["content"].startswith('Result of a tool call: {"tool": "memory_read"')
    assert (turn.status, turn.calls, [use["tool"] for use in turn.tools]) == ("done", 3, ["memory_read"] * 2)


class Said(Tool):
    """A tool that says its own name."""

    description = "Say your name."
    tool_class = "read"
    always_allowed = True

    def __init__(self, name: str) -> None:
        self.name = name

    def execute(self, agent_name: str, base_path: Path) -> ToolResult:
        """Say it."""
        return ToolResult(True, f"I am {self.name}")


def test_tools_whose_names_differ_in_what_backends_do_not_take_are_told_apart(overheard: Path) -> None:
    names = ["sums.a.b", "sums.a__b", "sums__a__b"]
    for name in names:
        ToolRegistry.register(Said(name))
    try:
        told = ["sums__a__b", "sums__a__b_2", "sums__a__b_3"]
        calls = [{"tool": name, "args": {}} for name in told]
        Overheard.replies[:] = [calling(*calls), Reply(json.dumps(say("done")))]
        run_once(overheard)
    finally:
        for name in names:
            ToolRegistry.unregister(name)
    offered = [tool["name"] for tool in Overheard.heard[0][0]["tools"]]
    assert sorted(set(told) & {*offered}) == told
    assert len(offered) == len({*offered})
    results = [message["content"] for message in Overheard.heard[1] if message["role"] == "tool"]
    assert results == ["I am sums__a__b", "I am sums.a.b", "I am sums.a__b"]


def test_a_reply_that_was_cut_off_ends_its_turn_so_and_says_what_to_raise(overheard: Path) -> None:
    Overheard.replies[:] = [Reply('{"outbox', finish="length")] * 2
    (turn,) = run_once(overheard).turns
    assert (turn.status, turn.end) == ("failed", "cut_off")
    assert 'raise "max_output_tokens" (2048) of "o" in config/models.json' in turn.reason
