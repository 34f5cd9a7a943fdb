"""Permission questions of Claude Code over its standard input and output."""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from harness_programs import make_home, make_variables, require_program
from model_servers import ModelServer

from lemming.capabilities.workers.harnesses.claude_permissions import LATER_MESSAGE, ClaudePermissions
from lemming.capabilities.workers.harnesses.harness_table import build_command, load_harness
from lemming.capabilities.workers.harnesses.harness_types import Decision, HarnessResult, PermissionQuestion
from lemming.capabilities.workers.harnesses.output_readers import make_reader


def make_question(tool: str = "Write", **arguments: object) -> bytes:
    """A line as Claude Code 2.1.197 printed it."""
    request = {
        "subtype": "can_use_tool", "tool_name": tool, "display_name": tool, "input": arguments, "description": "a.txt",
        "permission_suggestions": [{"type": "setMode", "mode": "acceptEdits", "destination": "session"}],
        "tool_use_id": "toolu_0_0",
    }  # fmt: skip
    return json.dumps({"type": "control_request", "request_id": "r1", "request": request}).encode()


def answer(decision: Decision, line: bytes) -> dict[str, Any]:
    reply = ClaudePermissions(lambda _: decision).answer(line)
    assert reply is not None
    assert reply.endswith(b"\n")
    response: dict[str, Any] = json.loads(reply)
    return response


def test_the_prompt_is_a_message_of_the_user() -> None:
    line = ClaudePermissions(lambda _: "allow").first_input('say "hi"\nand go')
    assert line.count(b"\n") == 1
    assert json.loads(line)["message"] == {"role": "user", "content": [{"type": "text", "text": 'say "hi"\nand go'}]}


def test_an_allowed_call_runs_with_the_input_that_was_judged() -> None:
    response = answer("allow", make_question(file_path="/run/a.txt", content="one"))
    assert response["response"]["request_id"] == "r1"
    assert response["response"]["response"] == {
        "behavior": "allow", "updatedInput": {"file_path": "/run/a.txt", "content": "one"},
    }  # fmt: skip


def test_a_denied_call_lets_the_model_go_on() -> None:
    response = answer("deny", make_question())["response"]["response"]
    assert response["behavior"] == "deny"
    assert "interrupt" not in response


def test_a_question_for_a_person_ends_the_turn_and_is_kept() -> None:
    permissions = ClaudePermissions(lambda _: "later")
    reply = permissions.answer(make_question("Bash", command="rm -r x"))
    assert reply is not None
    assert json.loads(reply)["response"]["response"] == {
        "behavior": "deny", "message": LATER_MESSAGE, "interrupt": True,
    }  # fmt: skip
    question = PermissionQuestion(tool="Bash", input={"command": "rm -r x"})
    assert permissions.questions == [question]
    ended = permissions.conclude(HarnessResult(session="s", error="stopped", message="interrupted"))
    assert (ended.error, ended.message, ended.questions) == ("", "", (question,))


def test_another_error_stays_one_beside_a_question() -> None:
    permissions = ClaudePermissions(lambda _: "later")
    permissions.answer(make_question())
    assert permissions.conclude(HarnessResult(error="auth", message="no key")).error == "auth"


def test_an_interruption_without_a_question_stays_one() -> None:
    result = HarnessResult(error="stopped", message="interrupted")
    assert ClaudePermissions(lambda _: "allow").conclude(result) is result


@pytest.mark.parametrize(
    "line",
    [
        b"", b'{"type":"assistant"}', b'"control_request"', b'{"type":"control_request"', b'["control_request"]',
        b'{"type":"user","text":"a \\"control_request\\" in a text"}',
    ],
)  # fmt: skip
def test_other_lines_are_not_answered(line: bytes) -> None:
    assert ClaudePermissions(lambda _: "allow").answer(line) is None


def test_a_text_that_speaks_of_a_question_asks_nothing() -> None:
    """A worker can print what it likes into a message, but not a line of its own."""
    line = json.dumps({"type": "assistant", "message": {"content": [{"text": make_question().decode()}]}}).encode()
    permissions = ClaudePermissions(lambda _: "later")
    assert permissions.answer(line) is None
    assert permissions.questions == []


def test_another_request_is_refused() -> None:
    line = b'{"type":"control_request","request_id":"r2","request":{"subtype":"hook_callback"}}'
    response = answer("allow", line)["response"]
    assert (response["subtype"], response["request_id"]) == ("error", "r2")


def test_the_result_ends_the_conversation() -> None:
    permissions = ClaudePermissions(lambda _: "allow")
    permissions.answer(b'{"type":"result","subtype":"success"}')
    assert permissions.is_finished


def run_claude(folder: Path, base_url: str, permissions: ClaudePermissions, session: str = "") -> HarnessResult:
    """Run the real program once, and answer its questions."""
    harness = load_harness("claude-code")
    require_program("claude")
    home = make_home(folder / "home", harness, "stand-in", base_url)
    (folder / "tree").mkdir(exist_ok=True)
    command = build_command(harness, model="stand-in", session=session, base_url=base_url, permissions="ask")
    reader = make_reader(harness.output)
    with subprocess.Popen(
        command, cwd=folder / "tree", env=make_variables(harness, home, "stand-in", base_url), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        guard = threading.Timer(60, process.kill)
        guard.start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(permissions.first_input("write the files"))
        process.stdin.flush()
        for line in process.stdout:
            list(reader.read_line(line))
            if reply := permissions.answer(line):
                process.stdin.write(reply)
                process.stdin.flush()
            if permissions.is_finished and not process.stdin.closed:
                process.stdin.close()
        guard.cancel()
    return permissions.conclude(reader.finish(process.returncode, ""))


@pytest.mark.long
def test_a_real_question_waits_for_a_person_and_the_session_goes_on(harness_folder: Path) -> None:
    script = [
        {"say": "I write.", "write": ["a.txt", "one\n"]},
        {"say": "Denied."},
        {"write": ["a.txt", "one\n"]},  # a question that was denied is not asked again: the model repeats the call
        {"say": "Written."},
    ]
    with ModelServer(script) as server:
        first = run_claude(harness_folder, server.url, ClaudePermissions(lambda _: "later"))
        assert not (harness_folder / "tree/a.txt").exists()
        granted: list[PermissionQuestion] = []
        permissions = ClaudePermissions(lambda question: "allow" if not granted.append(question) else "deny")
        second = run_claude(harness_folder, server.url, permissions, first.session)
    path = str(harness_folder / "tree/a.txt")
    assert first.questions == (PermissionQuestion(tool="Write", input={"file_path": path, "content": "one\n"}),)
    assert first.error == ""
    assert tuple(granted) == first.questions
    assert (second.text, second.error) == ("Written.", "")
    assert Path(path).read_text() == "one\n"


@pytest.mark.long
def test_a_real_denial_is_told_to_the_model(harness_folder: Path) -> None:
    with ModelServer([{"write": ["a.txt", "one\n"]}, {"say": "I may not."}]) as server:
        result = run_claude(harness_folder, server.url, ClaudePermissions(lambda _: "deny"))
        assert "This is not permitted." in server.requests[-1].text
    assert (result.text, result.error, result.questions) == ("I may not.", "", ())
    assert not (harness_folder / "tree/a.txt").exists()
