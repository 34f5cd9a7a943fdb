"""Real harnesses in the sandbox behind the gateway: Claude Code, Codex and pi against scripted model servers."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from harness_programs import SEARCH_PATH
from model_servers import ModelServer
from worker_runs import KEY, PRICES, change_run, make_run

from lemming.capabilities.workers.harnesses.harness_table import find_program, load_harness
from lemming.capabilities.workers.harnesses.harness_types import (
    Decision,
    HarnessEnd,
    HarnessRun,
    PermissionQuestion,
)
from lemming.capabilities.workers.harnesses.json_fields import RunTokens
from lemming.capabilities.workers.running.worker_run import run_harness
from lemming.capabilities.workers.running.worker_sandbox import get_worker_sandbox

NAMES = ("claude-code", "codex", "pi")
MODELS = {"claude-code": "claude-sonnet-4-5", "codex": "gpt-5.2-codex", "pi": "scripted"}
WRITE = {"write": ["a.txt", "one\n"], "usage": [1000, 200]}

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed"),
    pytest.mark.skipif(not get_worker_sandbox()[0], reason=get_worker_sandbox()[1]),
]


@pytest.fixture(params=NAMES)
def run(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HarnessRun:
    """Return a run of a released harness, without its server."""
    monkeypatch.setenv("PATH", SEARCH_PATH)
    harness = load_harness(request.param)
    if find_program(harness) is None:
        pytest.skip(f"{harness.name} is not installed: {harness.install}")
    prompt = f"Write the file. Working directory: {tmp_path / 'clone'}"
    return change_run(make_run(tmp_path, prompt), harness=harness, model=MODELS[harness.name], prices=PRICES)


def test_a_harness_writes_a_file_and_its_tokens_are_counted(run: HarnessRun, tmp_path: Path) -> None:
    look = "cat /proc/*/environ /proc/*/cmdline > seen.txt; env >> seen.txt"
    with ModelServer([WRITE, {"run": look}, {"say": "Written."}]) as server:
        end = run_harness(change_run(run, base_url=server.url))
        assert {request.key.removeprefix("Bearer ") for request in server.requests} == {KEY}
    assert (end.text, end.error, end.ended_by) == ("Written.", "", "")
    assert (end.requests, end.gateway_tokens) == (3, RunTokens(input=1200, output=240))
    assert (tmp_path / "clone" / "a.txt").read_text() == "one\n"
    assert end.session in (tmp_path / "session.json").read_text()
    assert "lemming-" in (tmp_path / "clone" / "seen.txt").read_text()
    holders = [path for path in tmp_path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    assert holders == []


def test_the_cost_limit_stops_a_harness_before_its_next_request(run: HarnessRun) -> None:
    with ModelServer([WRITE, {"run": "echo late > late.txt"}, {"say": "Written."}]) as server:
        end = run_harness(change_run(run, base_url=server.url, max_cost_usd=1.0))
        assert len(server.requests) == 1
    assert end.error == "budget"
    assert end.gateway_usd == pytest.approx(1.2)
    assert not (run.attempt.clone / "late.txt").exists()


def test_silence_ends_a_harness_whose_server_hangs(run: HarnessRun) -> None:
    with ModelServer([{**WRITE, "hang": True}]) as server:
        end = run_harness(change_run(run, base_url=server.url, silence_s=8.0))
    assert (end.ended_by, end.error) == ("silence", "stopped")
    assert end.requests >= 1


def test_a_session_goes_on_in_a_second_run(run: HarnessRun) -> None:
    with ModelServer([WRITE, {"say": "First."}, {"say": "Second."}]) as server:
        first = run_harness(change_run(run, base_url=server.url))
        second = run_harness(change_run(run, base_url=server.url, session=first.session, prompt="Go on."))
        assert "Write the file" in server.requests[-1].text
    assert (first.text, second.text) == ("First.", "Second.")
    assert second.tokens == RunTokens(input=100, output=20)  # also where the harness counts the session's


def run_with_permit(
    run: HarnessRun, name: str, decision: Decision, script: list[dict[str, Any]]
) -> tuple[HarnessEnd, list[PermissionQuestion]]:
    """Run a harness whose permission questions get one answer. Return its end and the questions."""
    harness = load_harness(name)
    if find_program(harness) is None:
        pytest.skip(f"{name} is not installed: {harness.install}")
    questions: list[PermissionQuestion] = []

    def permit(question: PermissionQuestion) -> Decision:
        questions.append(question)
        return decision

    with ModelServer(script) as server:
        model = "gpt-5.2-codex" if "codex" in name else "claude-sonnet-4-5"
        end = run_harness(change_run(run, harness=harness, model=model, base_url=server.url, permit=permit))
    return end, questions


@pytest.mark.parametrize("run", ["claude-code"], indirect=True)
@pytest.mark.parametrize("name", ["claude-code", "claude-code-acp", "codex-acp"])
@pytest.mark.parametrize("decision", ["allow", "later"])
def test_permission_questions_are_decided_while_a_harness_runs(run: HarnessRun, name: str, decision: Decision) -> None:
    end, questions = run_with_permit(run, name, decision, [WRITE, {"say": "Written."}])
    assert len(questions) == 1
    assert "a.txt" in str(questions[0].input)
    assert end.error == ""
    assert end.session
    assert list(end.questions) == (questions if decision == "later" else [])
    assert (run.attempt.clone / "a.txt").exists() == (decision == "allow")


def test_a_tool_of_a_harness_reaches_nothing_outside(run: HarnessRun, tmp_path: Path) -> None:
    outside: dict[str, Any] = {"secret": tmp_path / "secret", "home": Path.home()}
    outside["secret"].write_text("a secret of the user")
    command = (
        f"cat {outside['secret']} /etc/shadow > got.txt; ls {outside['home']}/.ssh >> got.txt; touch {tmp_path}/evil"
    )
    daemon = f"(setsid sh -c 'sleep 300; touch {run.attempt.clone}/ghost' >/dev/null 2>&1 &); echo up"
    with ModelServer([{"run": [command, daemon]}, {"say": "Done."}]) as server:
        end = run_harness(change_run(run, base_url=server.url))
    assert end.text == "Done."
    assert (run.attempt.clone / "got.txt").read_text() == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "clone",
        "home",
        "progress.jsonl",
        "secret",
        "session.json",
        "usage.jsonl",
    ]
