"""The client of the agent client protocol, with a scripted agent and with real ones."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from harness_programs import make_home, make_variables, require_program
from model_servers import ModelServer
from patience import PATIENCE_S

from lemming.capabilities.workers.harnesses.acp_reader import AcpReader
from lemming.capabilities.workers.harnesses.harness_table import build_invocation, load_harness, with_command
from lemming.capabilities.workers.harnesses.harness_types import (
    Decision,
    Harness,
    HarnessEnd,
    PermissionQuestion,
    Permit,
    Progress,
)
from lemming.capabilities.workers.running.harness_process import end_processes

GRACE_S = 2.5
AGENT = Path(__file__).parent / "acp_agent.py"
OPTIONS = [
    {"optionId": "always", "name": "Always", "kind": "allow_always"},
    {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
]
WRITE = {"toolCallId": "c1", "kind": "edit", "title": "Write a.txt", "rawInput": {"path": "a.txt", "content": "one"}}


def make_text(text: str) -> dict[str, Any]:
    return {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}


@dataclass
class Turn:
    """A turn with the scripted agent: the result, its progress, and what the agent was told."""

    result: HarnessEnd
    steps: list[Progress]
    told: list[dict[str, Any]]

    def find_answer(self, method: str) -> dict[str, Any]:
        return next(message for message in self.told if message.get("id") == f"{method}-call")

    def find_request(self, method: str) -> dict[str, Any]:
        return next(message["params"] for message in self.told if message.get("method") == method)


def converse(
    process: subprocess.Popen[bytes], harness: Harness, folder: Path, session: str, permit: Permit | None
) -> tuple[HarnessEnd, list[Progress]]:
    """Hold a turn with a started agent, and end it."""
    assert process.stdin is not None
    assert process.stdout is not None
    guard = threading.Timer(PATIENCE_S, process.kill)
    guard.start()
    reader, steps = AcpReader(harness, permit=permit), list[Progress]()
    process.stdin.write(reader.begin("write the files", session=session, folder=str(folder)))
    process.stdin.flush()
    while reader.error is None and (line := process.stdout.readline()):
        steps += reader.read_line(line)
        process.stdin.write(reader.answers)
        process.stdin.flush()
        reader.answers = b""
    process.stdin.close()  # an agent may save its session now
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_S)
    process.kill()
    guard.cancel()
    return reader.finish(-9, ""), steps


def run_script(folder: Path, *, session: str = "", permit: Permit | None = None, **script: Any) -> Turn:
    path = folder / "script.json"
    path.write_text(json.dumps(script))
    harness = with_command(load_harness("acp"), [sys.executable, "-S", "-E", str(AGENT), str(path)])
    command = build_invocation(harness, model="m", session=session).command
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        result, steps = converse(process, harness, folder, session, permit)
    told = [json.loads(line) for line in path.with_suffix(".json.log").read_text().splitlines()]
    return Turn(result, steps, told)


def test_a_turn_has_its_text_session_and_progress(tmp_path: Path) -> None:
    place = {"locations": [{"path": "/run/a.txt"}]}
    call = {"sessionUpdate": "tool_call", **WRITE, **place}
    turn = run_script(tmp_path, updates=[make_text("I write."), call, make_text("All "), make_text("done.")])
    assert turn.result == HarnessEnd(text="All done.", session="s1")
    assert [(step.kind, step.path) for step in turn.steps if step.kind != "text"] == [
        ("session", ""), ("file", "/run/a.txt"),
    ]  # fmt: skip
    assert turn.find_request("session/prompt")["prompt"][0]["text"] == "write the files"


def test_a_call_is_told_once_when_its_input_is_there(tmp_path: Path) -> None:
    announced = {
        "sessionUpdate": "tool_call",
        "toolCallId": "c1",
        "kind": "execute",
        "title": "Terminal",
        "rawInput": {},
    }
    known = {"sessionUpdate": "tool_call_update", "toolCallId": "c1", "rawInput": {"command": "make"}}
    ended = {"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "completed"}
    turn = run_script(tmp_path, updates=[announced, known, known, ended])
    assert [step.text for step in turn.steps if step.kind == "tool"] == ["execute: make"]


def test_neither_files_nor_terminals_are_offered(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    calls = [
        ["fs/read_text_file", {"path": str(tmp_path / "secret")}],
        ["fs/write_text_file", {"path": str(tmp_path / "new"), "content": "x"}],
        ["terminal/create", {"command": "touch"}],
    ]
    turn = run_script(tmp_path, calls=calls)
    offered = turn.find_request("initialize").get("clientCapabilities", {})
    assert not any(offered.get("fs", {}).values())
    assert not offered.get("terminal")
    for method in ("fs/read_text_file", "fs/write_text_file"):
        assert turn.find_answer(method)["error"]["code"] == -32601
    assert not turn.find_answer("terminal/create").get("result")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("decision", "option"), [("allow", "yes"), ("deny", "no"), ("later", "no")])
def test_a_question_is_answered_for_once(tmp_path: Path, decision: Decision, option: str) -> None:
    asked: list[PermissionQuestion] = []

    def permit(question: PermissionQuestion) -> Decision:
        asked.append(question)
        return decision

    turn = run_script(tmp_path, permit=permit, ask=WRITE, options=OPTIONS)
    question = PermissionQuestion(tool="edit", input={"path": "a.txt", "content": "one"})
    assert asked == [question]
    answer = turn.find_answer("session/request_permission")["result"]["outcome"]
    assert answer == {"outcome": "selected", "optionId": option}
    assert turn.result.questions == ((question,) if decision == "later" else ())


def test_without_permit_everything_is_allowed_once(tmp_path: Path) -> None:
    turn = run_script(tmp_path, ask=WRITE, options=OPTIONS)
    assert turn.find_answer("session/request_permission")["result"]["outcome"]["optionId"] == "yes"


def test_a_question_is_cancelled_where_only_always_is_offered(tmp_path: Path) -> None:
    turn = run_script(tmp_path, ask=WRITE, options=OPTIONS[:1])
    assert turn.find_answer("session/request_permission")["result"]["outcome"] == {"outcome": "cancelled"}


def test_a_question_has_the_input_that_came_with_its_call(tmp_path: Path) -> None:
    asked: list[PermissionQuestion] = []
    run_script(
        tmp_path, updates=[{"sessionUpdate": "tool_call", **WRITE}], ask={"toolCallId": "c1"}, options=OPTIONS,
        permit=lambda question: "deny" if asked.append(question) else "allow",
    )  # fmt: skip
    assert asked == [PermissionQuestion(tool="edit", input={"path": "a.txt", "content": "one"})]


def test_a_question_without_input_has_the_change_and_not_only_its_title(tmp_path: Path) -> None:
    asked: list[PermissionQuestion] = []
    change = {"type": "diff", "path": "/run/a.txt", "oldText": "", "newText": "one"}
    run_script(
        tmp_path, ask={"toolCallId": "c1", "kind": "edit", "title": "Writing a.txt", "content": [change]},
        options=OPTIONS, permit=lambda question: "deny" if asked.append(question) else "allow",
    )  # fmt: skip
    assert asked[0].input["title"] == "Writing a.txt"
    assert asked[0].input["content"][0]["new_text"] == "one"


def test_inner_keys_of_a_question_are_as_on_the_wire_so_that_an_earlier_grant_answers_it(tmp_path: Path) -> None:
    asked: list[PermissionQuestion] = []
    link = {"type": "resource_link", "uri": "file:///run/a.txt", "name": "a.txt", "mimeType": "text/plain"}
    content = [{"type": "content", "content": link}, {"type": "diff", "path": "/run/a.txt", "newText": "one"}]
    run_script(
        tmp_path, ask={"toolCallId": "c1", "kind": "edit", "title": "Writing a.txt", "content": content},
        options=OPTIONS, permit=lambda question: "deny" if asked.append(question) else "allow",
    )  # fmt: skip
    assert asked[0].input["content"] == [
        {"type": "content", "content": link},
        {"type": "diff", "path": "/run/a.txt", "new_text": "one"},
    ]


def test_keys_that_differ_at_each_asking_are_no_part_of_a_question(tmp_path: Path) -> None:
    asked: list[PermissionQuestion] = []
    keys = {"command": ["ls"], "cwd": "/run", "call_id": "1", "turn_id": "2", "started_at_ms": 3}
    run_script(
        tmp_path, ask={"toolCallId": "c1", "kind": "execute", "rawInput": keys}, options=OPTIONS,
        permit=lambda question: "deny" if asked.append(question) else "allow",
    )  # fmt: skip
    assert asked == [PermissionQuestion(tool="execute", input={"command": ["ls"], "cwd": "/run"})]


def test_a_session_is_loaded_without_its_history_in_the_reply(tmp_path: Path) -> None:
    turn = run_script(tmp_path, session="s1", history=[make_text("old")], updates=[make_text("new")])
    assert turn.result == HarnessEnd(text="new", session="s1")
    assert turn.find_request("session/load")["sessionId"] == "s1"


def test_a_session_that_is_gone_has_its_kind(tmp_path: Path) -> None:
    turn = run_script(tmp_path, session="s1")
    assert turn.result.error == "session"
    assert "not found" in turn.result.message


def test_an_agent_that_cannot_load_sessions_is_not_asked_to(tmp_path: Path) -> None:
    turn = run_script(tmp_path, session="s1", load=False)
    assert (turn.result.error, turn.result.message) == ("session", "acp cannot load a session")
    assert "session/load" not in [message.get("method") for message in turn.told]


@pytest.mark.parametrize(
    ("stop", "kind"),
    [("max_tokens", "model"), ("max_turn_requests", "turns"), ("refusal", "model"), ("cancelled", "stopped")],
)
def test_another_stop_reason_is_no_success(tmp_path: Path, stop: str, kind: str) -> None:
    assert run_script(tmp_path, stop=stop).result.error == kind


def test_a_turn_that_waits_for_a_person_is_no_error(tmp_path: Path) -> None:
    turn = run_script(tmp_path, stop="cancelled", ask=WRITE, options=OPTIONS, permit=lambda _: "later")
    assert turn.result.error == ""
    assert len(turn.result.questions) == 1


@pytest.mark.parametrize(
    "update",
    [{}, {"sessionUpdate": "dance"}, {"sessionUpdate": "tool_call"}, {"sessionUpdate": "tool_call", "title": 5}],
)
def test_an_update_that_does_not_fit_is_passed_over(tmp_path: Path, update: dict[str, Any]) -> None:
    assert run_script(tmp_path, updates=[update, make_text("ok")]).result == HarnessEnd(text="ok", session="s1")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": -32000, "message": "Authentication required"}, "auth"),
        ({"code": -32603, "message": "Internal error: API Error: 401 no key"}, "auth"),
        ({"code": -32603, "message": "Internal error", "data": {"details": "rate_limit_error"}}, "rate_limit"),
        ({"code": -32603, "message": "Internal error"}, "model"),
    ],
)
def test_an_error_of_the_protocol_has_its_kind(tmp_path: Path, error: dict[str, Any], kind: str) -> None:
    turn = run_script(tmp_path, updates=[make_text("half")], error=error)
    assert (turn.result.error, turn.result.text, turn.result.session) == (kind, "half", "s1")
    assert error["message"] in turn.result.message


def test_an_agent_that_dies_is_an_error_with_the_text_so_far(tmp_path: Path) -> None:
    turn = run_script(tmp_path, updates=[make_text("half")], die=True)
    assert (turn.result.error, turn.result.text, turn.result.session) == ("exit", "half", "s1")
    assert turn.result.message.startswith("the harness ended before it answered")


def test_an_answer_that_does_not_fit_the_protocol_is_no_success(tmp_path: Path) -> None:
    turn = run_script(tmp_path, stop="tired")
    assert turn.result.error == "unreadable"
    assert "must fit the protocol" in turn.result.message


def test_half_a_character_leaves_a_text_that_a_file_can_hold(tmp_path: Path) -> None:
    call = {"sessionUpdate": "tool_call", "toolCallId": "c1", "kind": "read", "title": "\ud83d", "rawInput": {"x": 1}}
    turn = run_script(tmp_path, updates=[call, make_text("half \ud83d")])
    assert turn.result.text == "half ?"
    assert [step.text for step in turn.steps if step.kind == "tool"] == ["read: ?"]


MESSAGES: list[dict[str, Any]] = [
    {"id": 0, "result": {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}}},
    {"id": 1, "result": {"sessionId": "s1"}},
    {"method": "session/update", "params": {"sessionId": "s1", "update": make_text("done")}},
    {"method": "session/update", "params": {"sessionId": "s1", "update": {"sessionUpdate": "tool_call", **WRITE}}},
    {"id": "q", "method": "session/request_permission", "params": {"toolCall": WRITE, "options": OPTIONS}},
    {"id": 2, "error": {"code": -32603, "message": "Internal error", "data": {"details": "x"}}},
]


@pytest.mark.parametrize("number", range(len(MESSAGES)))
def test_fields_of_another_type_neither_raise_nor_print(number: int, caplog: pytest.LogCaptureFixture) -> None:
    """The package prints a traceback for what it did not expect, on the terminal of the engine."""
    for key in MESSAGES[number]:
        for value in (None, 7, True, "x", [], [None, {}], {}, {"content": 5, "update": {}}):
            reader = AcpReader(load_harness("acp"), permit=lambda _: "later")
            reader.begin("go", folder="/run")
            for message in (*MESSAGES[:number], {**MESSAGES[number], key: value}, *MESSAGES[number + 1 :]):
                list(reader.read_line(json.dumps(message).encode()))
            assert reader.finish(1, "").error
    assert caplog.records == []


def test_a_turn_runs_where_a_loop_is_running(tmp_path: Path) -> None:
    async def run_in_loop() -> Turn:
        return run_script(tmp_path, updates=[make_text("ok")])

    assert asyncio.run(run_in_loop()).result == HarnessEnd(text="ok", session="s1")


def test_lines_that_are_no_messages_are_passed_over(tmp_path: Path) -> None:
    turn = run_script(tmp_path, garbage="npm warn: old\n[1]\n{}", updates=[make_text("ok")])
    assert turn.result == HarnessEnd(text="ok", session="s1")


def run_real(
    command: list[str], folder: Path, base_url: str, session: str = "", permit: Permit | None = None
) -> HarnessEnd:
    harness = with_command(load_harness("acp"), command)
    program = require_program(command[0])
    home = make_home(folder / "home", harness, "stand-in", base_url)
    (folder / "tree").mkdir(exist_ok=True)
    with subprocess.Popen(
        [program, *command[1:]], cwd=folder / "tree", env=make_variables(harness, home, "stand-in", base_url),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        result, _ = converse(process, harness, folder / "tree", session, permit)
        end_processes(home)  # the process that was started is a launcher, and the real program writes into its HOME
    return result


@pytest.mark.long
@pytest.mark.parametrize(
    "command", [["claude-code-acp"], ["codex-acp"], ["gemini", "--acp"], ["opencode", "acp"]], ids=" ".join
)
def test_a_real_agent_asks_works_and_is_refused(command: list[str], harness_folder: Path) -> None:
    asked: list[PermissionQuestion] = []
    script = [{"say": "I write.", "write": ["a.txt", "one\n"]}, {"say": "Written."}, {"write": ["b.txt", "two\n"]}]
    with ModelServer(script) as server:
        first = run_real(
            command, harness_folder, server.url, permit=lambda question: "deny" if asked.append(question) else "allow"
        )
        assert (first.text, first.error) == ("Written.", "")
        assert (harness_folder / "tree/a.txt").read_text() == "one\n"
        assert len(asked) == 1
        if command[0] == "gemini":
            return  # version 0.61.0 does not find its sessions again
        second = run_real(command, harness_folder, server.url, first.session, lambda _: "later")
    assert len(second.questions) == 1
    assert second.session == first.session
    assert not (harness_folder / "tree/b.txt").exists()
