"""Providers, tools and surroundings that misbehave: the turn may fail, the tick and the others do not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hostile import CONTRACT
from sound import assert_sound, said

from lemming.engine import run_once
from lemming.kernel.base import paths
from lemming.kernel.base.errors import RequestRejected
from lemming.kernel.base.redaction import secrets
from lemming.kernel.files.file_effects import FileEffect
from lemming.kernel.journal.ledger import AgentState, read_state, write_state
from lemming.kernel.journal.turn_report import TurnReport
from lemming.kernel.plugins.plugin_registry import unregister
from lemming.kernel.providers import LLMProvider, Message, Reply, Request, register_provider
from lemming.kernel.tools import EngineTool, Tool, ToolRegistry, ToolResult
from lemming.kernel.tools.tool_context import ToolContext
from lemming.testing import Crash, FrozenClock, journal_lines, make_org, resume, say


class Odd(LLMProvider):
    """Answers with whatever the test put here, or raises it."""

    keeps_deadline = True
    answer: ClassVar[Reply | Exception] = Reply(text=CONTRACT)

    def call(self, model_name: str, messages: list[Message], temperature: float | None, **kwargs: Any) -> str:
        raise NotImplementedError

    def complete(self, request: Request) -> Reply:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Meddler(Odd):
    """Writes into the messages that it is given."""

    def complete(self, request: Request) -> Reply:
        for message in request.messages:
            message["content"] += " MEDDLED"
        return Reply(text=CONTRACT)


class Deadly(Odd):
    """Takes the process with it."""

    def complete(self, request: Request) -> Reply:
        raise Crash


class Ping(Tool):
    name = "ping"
    description = "Reaches outside."

    def execute(self, agent_name: str, base_path: Path, **kwargs: Any) -> ToolResult:
        return ToolResult(True, "pong")


class Pong(Ping):
    name = "pong"
    always_allowed = True


@pytest.fixture
def org(base: Path) -> Iterator[Path]:
    """Ada and zed around mallory, whose provider is odd and who may ping."""
    register_provider("odd", Odd)
    ToolRegistry.register(Ping())
    tools = {"tools": ["ping", "file_write"], "file_access": {"allow_write": ["./workspace", "/nonexistent"]}}
    mallory = resume("mallory", model={"key": "odd"}, permissions=tools)
    odd = {"provider": "odd", "prompt": "full", "per_call": 1, "per_1k_input_tokens": 1, "per_1k_output_tokens": 1}
    yield make_org(base, resume("ada"), mallory, resume("zed"), models={"odd": odd})
    unregister("provider", "odd")
    ToolRegistry.unregister("ping")
    ToolRegistry.unregister("pong")


def run_twice(org: Path, answer: Reply | Exception) -> list[TurnReport]:
    """Run two ticks in which mallory's provider answers like this; return her turns."""
    Odd.answer = answer
    reports = [run_once(org, clock=FrozenClock()) for _ in range(2)]
    for report in reports:
        assert [turn.status for turn in report.turns if turn.agent != "mallory"] == ["done", "done"]
        assert journal_lines(org, report.tick)[-1]["type"] == "tick_committed"
    assert_sound(org)
    return [turn for report in reports for turn in report.turns if turn.agent == "mallory"]


@pytest.mark.parametrize("count", [float("nan"), float("inf"), -5, 10**400, "many", True, 1.5])
def test_a_provider_that_counts_nonsense_is_not_believed(org: Path, count: Any) -> None:
    turns = run_twice(org, Reply(text=CONTRACT, input_tokens=count, output_tokens=count, cached_tokens=count))
    assert [turn.status for turn in turns] == ["done", "done"]
    assert all(0 < turn.input_tokens < 10_000 and 1 < turn.credits < 10 for turn in turns)
    assert read_state(org, "mallory").credits == pytest.approx(sum(turn.credits for turn in turns))


def test_a_reply_with_fields_of_other_types_is_recorded_as_text(org: Path) -> None:
    odd: Any = object()
    turns = run_twice(org, Reply(text=CONTRACT, model=odd, finish=odd))
    assert [turn.status for turn in turns] == ["done", "done"]


def test_of_a_monstrous_reply_the_journal_keeps_the_beginning(org: Path) -> None:
    turns = run_twice(org, Reply(text="words " * (1 << 19)))
    assert turns[0].reason == "the reply is larger than 1048576 bytes"
    (replied, *_) = [r for r in journal_lines(org, 1) if r["type"] == "model_replied" and r["agent"] == "mallory"]
    assert len(replied["text"]) == 2 << 20


def test_an_error_that_is_not_text_is_recorded_as_text(org: Path) -> None:
    turns = run_twice(org, RequestRejected("half of a pair: \ud800"))
    assert [turn.status for turn in turns] == ["failed", "failed"]
    assert "half of a pair: ?" in (org / "logs/engine.log").read_text()


class Overlong(EngineTool):
    name = "overlong"
    description = "Writes a file whose name no file system takes."

    def plan(self, context: ToolContext) -> ToolResult:
        path = f"agents/{context.agent.name}/workspace/{'x' * 300}"
        return ToolResult(True, "written", (FileEffect(path, b"x"),))


def test_a_staged_file_that_cannot_be_written_keeps_a_tool_from_running(org: Path) -> None:
    ToolRegistry.register(Overlong())
    resume_file = org / "agents/mallory/resume.json"
    resume_file.write_text(resume_file.read_text().replace('"ping"', '"ping", "overlong"'))
    reply = say("hi", tool_calls=[{"tool": "overlong", "args": {}}, {"tool": "ping", "args": {}}])
    turns = run_twice(org, Reply(text=json.dumps(reply)))
    ToolRegistry.unregister("overlong")
    assert [tool["success"] for tool in turns[0].tools] == [True, False]
    assert "ping was not run" in said(journal_lines(org, 1), "mallory")


def test_a_granted_folder_that_is_gone_is_the_agents_trouble_and_not_the_engines(org: Path) -> None:
    writing = {"tool": "file_write", "args": {"path": "/nonexistent/x.txt", "content": "x"}}
    turns = run_twice(org, Reply(text=json.dumps(say("hi", tool_calls=[writing]))))
    assert [tool["success"] for tool in turns[0].tools] == [False]


def test_a_provider_that_writes_into_the_prompt_does_not_change_the_next_one(org: Path) -> None:
    register_provider("odd", Meddler)
    run_twice(org, Reply(text=CONTRACT))
    second = [r for r in journal_lines(org, 2) if r["type"] == "turn_started" and r["agent"] == "mallory"]
    assert "MEDDLED" not in json.dumps(second)


def test_a_tool_that_is_registered_between_two_ticks_is_in_the_next_prompt(org: Path) -> None:
    run_once(org, clock=FrozenClock())
    ToolRegistry.register(Pong())
    run_once(org, clock=FrozenClock())
    first, second = (journal_lines(org, tick)[1]["prompt"][0]["content"] for tick in (1, 2))
    assert "- pong: " not in first
    assert "- pong: " in second


def test_a_secret_in_a_prompt_is_not_written_down(org: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOOR_KEY", "open sesame")
    secrets.refresh()
    mallory = resume("mallory", model={"key": "odd"}, instructions="Say open sesame.")
    (org / "agents/mallory/resume.json").write_text(json.dumps(mallory))
    try:
        run_twice(org, Reply(text=CONTRACT))
    finally:
        monkeypatch.undo()
        secrets.refresh()
    (started,) = [r for r in journal_lines(org, 1) if r["type"] == "turn_started" and r["agent"] == "mallory"]
    assert "Say [redacted DOOR_KEY]." in started["prompt"][0]["content"]
    assert b"open sesame" not in (org / paths.journal_file(1)).read_bytes()


def test_a_number_that_looks_like_a_secret_does_not_break_the_journal(
    org: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SESSION_TOKEN", "20260101")
    monkeypatch.setenv("SIGNING_KEY", "tick_committed")
    secrets.refresh()
    try:
        run_twice(org, Reply(text=CONTRACT, input_tokens=20260101))
    finally:
        monkeypatch.undo()
        secrets.refresh()
    (replied,) = [r for r in journal_lines(org, 1) if r["type"] == "model_replied" and r["agent"] == "mallory"]
    assert replied["input_tokens"] == 20260101


def test_a_secret_that_is_the_name_of_a_field_does_not_keep_a_turn_from_being_taken_again(
    org: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOOR_PASSWORD", "allocation")
    secrets.refresh()
    register_provider("odd", Deadly)
    try:
        with pytest.raises(Crash):
            run_once(org, clock=FrozenClock())
        register_provider("odd", Odd)
        report = run_once(org, clock=FrozenClock())
    finally:
        monkeypatch.undo()
        secrets.refresh()
    assert {turn.agent: turn.status for turn in report.turns}["mallory"] == "done"


def test_a_ledger_keeps_its_newest_lines_within_its_bound(base: Path) -> None:
    base.mkdir()
    for tick in range(40):
        write_state(base, "ada", AgentState(tick=tick, results=({"output": "x" * 100_000},)))
    ledger = base / "agents/ada/turns.jsonl"
    assert ledger.stat().st_size < 1 << 20
    assert read_state(base, "ada").tick == 39
    turns = [json.loads(line) for line in ledger.read_text().splitlines()]
    assert [turn["tick"] for turn in turns[-3:]] == [37, 38, 39]
