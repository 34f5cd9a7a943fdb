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
from patience import PATIENCE_S

from lemming.capabilities.workers.harnesses.harness_table import build_invocation, load_harness
from lemming.capabilities.workers.harnesses.harness_types import Decision, HarnessEnd, PermissionQuestion, Permit
from lemming.capabilities.workers.harnesses.output_readers import LATER_MESSAGE, ClaudeReader


def make_reader(permit: Permit | None = None) -> ClaudeReader:
    return ClaudeReader(load_harness("claude-code"), permit=permit)


def make_question(tool: str = "Write", **arguments: object) -> bytes:
    """A line as Claude Code 2.1.197 printed it."""
    request = {
        "subtype": "can_use_tool", "tool_name": tool, "display_name": tool, "input": arguments, "description": "a.txt",
        "permission_suggestions": [{"type": "setMode", "mode": "acceptEdits", "destination": "session"}],
        "tool_use_id": "toolu_0_0",
    }  # fmt: skip
    return json.dumps({"type": "control_request", "request_id": "r1", "request": request}).encode()


def read(reader: ClaudeReader, line: bytes) -> bytes:
    """Return the answer to a line."""
    assert list(reader.read_line(line)) == []
    return reader.answers


def answer(decision: Decision, line: bytes) -> dict[str, Any]:
    reply = read(make_reader(lambda _: decision), line)
    assert reply.endswith(b"\n")
    response: dict[str, Any] = json.loads(reply)
    return response


def test_the_prompt_is_a_message_of_the_user() -> None:
    line = make_reader(lambda _: "allow").begin('say "hi"\nand go')
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


INTERRUPTED = b'{"type":"result","subtype":"error_during_execution","terminal_reason":"aborted_tools","session_id":"s"}'


def test_a_question_for_a_person_ends_the_turn_and_is_kept() -> None:
    reader = make_reader(lambda _: "later")
    assert json.loads(read(reader, make_question("Bash", command="rm -r x")))["response"]["response"] == {
        "behavior": "deny", "message": LATER_MESSAGE, "interrupt": True,
    }  # fmt: skip
    question = PermissionQuestion(tool="Bash", input={"command": "rm -r x"})
    assert reader.questions == [question]
    read(reader, INTERRUPTED)
    result = reader.finish(1, "")
    assert (result.error, result.message, result.questions) == ("", "", (question,))


def test_another_error_stays_one_beside_a_question() -> None:
    reader = make_reader(lambda _: "later")
    read(reader, make_question())
    assert reader.finish(1, "").error == "exit"


def test_an_interruption_without_a_question_stays_one() -> None:
    reader = make_reader(lambda _: "allow")
    read(reader, INTERRUPTED)
    assert reader.finish(0, "").error == "stopped"


@pytest.mark.parametrize(
    "line",
    [
        b"", b'{"type":"assistant"}', b'"control_request"', b'{"type":"control_request"', b'["control_request"]',
        b'{"type":"user","text":"a \\"control_request\\" in a text"}',
    ],
)  # fmt: skip
def test_other_lines_are_not_answered(line: bytes) -> None:
    assert read(make_reader(lambda _: "allow"), line) == b""


def test_a_text_that_speaks_of_a_question_asks_nothing() -> None:
    """A worker can print what it likes into a message, but not a line of its own."""
    line = json.dumps({"type": "assistant", "message": {"content": [{"text": make_question().decode()}]}}).encode()
    reader = make_reader(lambda _: "later")
    assert len(list(reader.read_line(line))) == 1
    assert (reader.answers, reader.questions) == (b"", [])


def test_another_request_is_refused() -> None:
    line = b'{"type":"control_request","request_id":"r2","request":{"subtype":"hook_callback"}}'
    response = answer("allow", line)["response"]
    assert (response["subtype"], response["request_id"]) == ("error", "r2")


def test_the_result_ends_the_conversation() -> None:
    reader = make_reader(lambda _: "allow")
    reader.begin("go")
    assert reader.is_answering
    read(reader, b'{"type":"result","subtype":"success"}')
    assert not reader.is_answering


def test_a_question_of_a_run_without_answers_is_passed_over() -> None:
    assert read(make_reader(), make_question()) == b""


def run_claude(folder: Path, base_url: str, reader: ClaudeReader, session: str = "") -> HarnessEnd:
    """Run the real program once, and answer its questions."""
    harness = load_harness("claude-code")
    require_program("claude")
    home = make_home(folder / "home", harness, "stand-in", base_url)
    (folder / "tree").mkdir(exist_ok=True)
    command = build_invocation(harness, model="stand-in", session=session, base_url=base_url, permissions="ask").command
    with subprocess.Popen(
        command, cwd=folder / "tree", env=make_variables(harness, home, "stand-in", base_url), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        guard = threading.Timer(PATIENCE_S, process.kill)
        guard.start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(reader.begin("write the files"))
        process.stdin.flush()
        for line in process.stdout:
            list(reader.read_line(line))
            if reader.answers:
                process.stdin.write(reader.answers)
                process.stdin.flush()
                reader.answers = b""
            if not reader.is_answering and not process.stdin.closed:
                process.stdin.close()
        guard.cancel()
    return reader.finish(process.returncode, "")


@pytest.mark.long
def test_a_real_question_waits_for_a_person_and_the_session_goes_on(harness_folder: Path) -> None:
    script = [
        {"say": "I write.", "write": ["a.txt", "one\n"]},  # the denial interrupts: the model is not asked again
        {"write": ["a.txt", "one\n"]},  # a question that was denied is not asked again: the model repeats the call
        {"say": "Written."},
    ]
    with ModelServer(script) as server:
        first = run_claude(harness_folder, server.url, make_reader(lambda _: "later"))
        assert not (harness_folder / "tree/a.txt").exists()
        granted: list[PermissionQuestion] = []
        reader = make_reader(lambda question: "allow" if not granted.append(question) else "deny")
        second = run_claude(harness_folder, server.url, reader, first.session)
    path = str(harness_folder / "tree/a.txt")
    assert first.questions == (PermissionQuestion(tool="Write", input={"file_path": path, "content": "one\n"}),)
    assert first.error == ""
    assert tuple(granted) == first.questions
    assert (second.text, second.error) == ("Written.", "")
    assert Path(path).read_text() == "one\n"


@pytest.mark.long
def test_a_real_denial_is_told_to_the_model(harness_folder: Path) -> None:
    with ModelServer([{"write": ["a.txt", "one\n"]}, {"say": "I may not."}]) as server:
        result = run_claude(harness_folder, server.url, make_reader(lambda _: "deny"))
        assert "This is not permitted." in server.requests[-1].text
    assert (result.text, result.error, result.questions) == ("I may not.", "", ())
    assert not (harness_folder / "tree/a.txt").exists()
