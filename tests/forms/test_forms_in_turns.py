"""Turns in which a model is asked for the simplest reply that can express what the turn may do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lemming.engine import run_once
from lemming.journal_tools.recorded_tick import load_tick_record
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.kernel.journal.turn_report import TurnReport
from lemming.kernel.memory import load_memory
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tools import Tool, ToolRegistry, ToolResult
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import Crash, FrozenClock, crash_at, make_org, resume, tree

FIT = {"provider": "scripted", "options": {"file": "config/answers.jsonl"}, "prompt": "fit"}
BOB, EVE = (resume(name, model={"key": "human"}, permissions={"read_outboxes": ["ada"]}) for name in ("bob", "eve"))
MODELS = {"fit": FIT, "human": {"provider": "human"}}


def do(name: str, **arguments: Any) -> dict[str, Any]:
    """Return an action as a model writes it."""
    return {"do": name, **arguments}


def org(base: Path, *script: dict[str, Any], entry: dict[str, Any] = FIT, **blocks: Any) -> Path:
    """Make an organisation of one agent with tools and a memory, and two that read it."""
    tools = ["file_read", "file_write", "memory_write"]
    ada = resume("ada", model={"key": "fit"}, permissions={"tools": tools}, **blocks)
    made = make_org(base, ada, BOB, EVE, models={**MODELS, "fit": entry}, script=[*script])
    (base / "agents/ada/workspace").mkdir(parents=True)
    (base / "agents/ada/workspace/n.txt").write_text("21")
    return made


def take_turn(base: Path) -> TurnReport:
    """Run a tick and return ada's turn."""
    return next(turn for turn in run_once(base, clock=FrozenClock()).turns if turn.agent == "ada")


def said(base: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return what ada wrote: kinds and payloads."""
    return [(entry.kind, entry.payload) for entry in read_outbox_entries(base, "ada")]


STEPS = (
    {"step": 0, "reply": do("file_read", path="n.txt")},
    {"step": 1, "reply": f"<tool_call>\n{json.dumps(do('file_write', path='out.txt', content='42'))}\n</tool_call>"},
    {"step": 2, "reply": f"```json\n{json.dumps(do('remember', key='last', value='42'))}\n```"},
    {"step": 3, "reply": do("send", to="bob", text="it is 42")},
)


@pytest.mark.parametrize("prompt", ["fit", "tools"])
def test_a_model_reads_computes_writes_remembers_and_tells_a_step_at_a_time(base: Path, prompt: str) -> None:
    made = org(base, *STEPS, entry={**FIT, "prompt": prompt})
    turn = take_turn(made)
    assert (turn.status, turn.calls) == ("done", 4)
    assert said(base) == [("message", {"text": "it is 42", "target": "bob"})]
    assert (base / "agents/ada/workspace/out.txt").read_text() == "42"
    assert load_memory(base, "ada", "last") == "42"
    assert [replayed.turns for replayed in replay_ticks(made, [1])] == [1]


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


def prompt_of(base: Path, tick: int = 1) -> list[dict[str, Any]]:
    """Return the prompt of ada's turn."""
    return load_tick_record(Organisation.from_path(base), tick).started["ada"].prompt


def test_the_prompt_has_the_instructions_and_each_action_once(base: Path) -> None:
    run_once(org(base, {"reply": do("done")}), clock=FrozenClock())
    system, situation = prompt_of(base)
    lines = system["content"].splitlines()
    assert lines[0] == "You are ada."
    assert [line.partition("(")[0] for line in lines[lines.index("Actions:") + 1 :][:5]] == [
        "file_read", "file_write", "remember", "send", "done"
    ]  # fmt: skip
    assert situation["content"] == "(nothing new)"


def test_done_ends_the_turn_with_nothing_written(base: Path) -> None:
    turn = take_turn(org(base, {"reply": do("done")}))
    assert (turn.status, turn.calls, list(turn.entries)) == ("done", 1, [])


def test_steps_end_at_eight_where_nothing_else_is_said(base: Path) -> None:
    script = [{"step": step, "reply": do("file_read", path=f"{step}.txt")} for step in range(20)]
    turn = take_turn(org(base, *script))
    assert turn.calls == 8


def test_a_tool_that_it_may_not_call_is_refused_as_ever(base: Path) -> None:
    script = [{"step": 0, "reply": {"name": "shell", "arguments": {"command": "ls"}}}, {"reply": do("done")}]
    turn = take_turn(org(base, *script))
    (used,) = turn.tools
    assert (used["tool"], used["success"]) == ("shell", False)


def test_a_reply_of_four_keys_is_understood_too(base: Path) -> None:
    entry = {"kind": "message", "payload": {"text": "hi"}}
    turn = take_turn(org(base, {"reply": {"outbox_entries": [entry]}}))
    assert len(turn.entries) == 1


def test_a_plain_text_is_what_an_agent_says_that_nobody_reads(base: Path) -> None:
    ada = resume("ada", model={"key": "fit"})
    made = make_org(base, ada, models=MODELS, script=[{"reply": "Nothing happened today."}])
    take_turn(made)
    assert said(base) == [("message", {"text": "Nothing happened today."})]
    assert "Actions:" not in prompt_of(base)[0]["content"]


def test_a_reader_that_there_is_not_is_asked_for_again_with_one_that_there_is(base: Path) -> None:
    script = [
        {"step": 0, "reply": do("send", to="zoe", text="hi")},
        {"step": 1, "reply": do("send", to="eve", text="hi")},
    ]
    turn = take_turn(org(base, *script))
    assert said(base) == [("message", {"text": "hi", "target": "eve"})]
    assert turn.remarks == ['asked again: send: "to" must be one of bob, eve, all, got "zoe"']


def test_all_readers_are_reached_by_a_message_to_all(base: Path) -> None:
    run_once(org(base, {"reply": do("send", to="all", text="hi")}), clock=FrozenClock())
    assert said(base) == [("message", {"text": "hi"})]


def test_a_broken_reply_is_not_shown_again_and_the_smallest_valid_one_is(base: Path) -> None:
    script = [{"step": 0, "reply": 'send("bob")'}, {"step": 1, "reply": do("send", to="bob", text="hi")}]
    made = org(base, *script)
    turn = take_turn(made)
    assert (turn.status, turn.calls, len(turn.entries)) == ("done", 2, 1)


def test_instructions_that_name_keys_of_the_contract_are_asked_for_the_contract(base: Path) -> None:
    ada = resume("ada", model={"key": "fit"}, instructions="Reply with outbox_entries.")
    made = make_org(base, ada, models=MODELS, script=[{"reply": {"notes": "x"}}])
    run_once(made, clock=FrozenClock())
    assert "# Your reply" in prompt_of(base)[-1]["content"]


class Send(Tool):
    """A tool that has the name of an action of the engine's own."""

    name, description, tool_class = "send", "Send a letter.", "read"

    def execute(self, agent_name: str, base_path: Path, text: str) -> ToolResult:
        """Say that it is sent."""
        return ToolResult(True, f"sent {text}")


def test_a_tool_that_has_the_name_of_an_action_is_offered_under_another(base: Path) -> None:
    ToolRegistry.register(Send())
    try:
        ada = resume("ada", model={"key": "fit"}, permissions={"tools": ["send"]})
        script = [{"step": 0, "reply": do("send_tool", text="hi")}, {"step": 1, "reply": do("done")}]
        turn = take_turn(make_org(base, ada, BOB, models=MODELS, script=script))
    finally:
        ToolRegistry.unregister("send")
    assert [(used["tool"], used["success"]) for used in turn.tools] == [("send", True)]


@pytest.mark.parametrize("name", ["to", "kind"])
def test_a_form_with_a_field_of_the_engines_own_is_asked_for_as_the_contract(base: Path, name: str) -> None:
    schema = {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}
    ada = resume("ada", model={"key": "fit"}, output={"schema": schema}, turn={"kinds": ["report"]})
    entry = {"kind": "report", "payload": {"text": "x", name: "y"}}
    made = make_org(base, ada, BOB, EVE, models=MODELS, script=[{"reply": {"outbox_entries": [entry]}}])
    assert take_turn(made).status == "done"
    assert "# Your reply" in prompt_of(base)[-1]["content"]
