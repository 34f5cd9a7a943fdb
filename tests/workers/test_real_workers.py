"""Claude Code, Codex, pi and others as workers of an organisation: real programs, a stand-in for their model."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from harness_programs import SEARCH_PATH, require_program
from model_servers import ModelServer
from worker_org import PERSON, ask_worker, git, make_repository, outbox

from lemming.cli import run
from lemming.engine import run_once
from lemming.journal_tools.verify.file_verification import verify_org
from lemming.testing import journal_lines, make_org, resume

HARNESSES = {
    "claude-code": ("claude", "claude-sonnet-4-5"),
    "codex": ("codex", "gpt-5.2-codex"),
    "pi": ("pi", "claude-sonnet-4-5"),
    "opencode": ("opencode", "claude-sonnet-4-5"),
    "gemini-cli": ("gemini", "gemini-2.5-pro"),
    "acp": ("claude-code-acp", "claude-sonnet-4-5"),
}
SCRIPT = [{"say": "I write.", "run": "echo two >> src/a.txt"}, {"say": "I changed a file."}]
pytestmark = [pytest.mark.long, pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")]


@pytest.fixture(autouse=True)
def _programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", SEARCH_PATH)
    monkeypatch.setenv("MODEL_KEY", "sk-the-real-key-0123456789")


def make_real_org(tmp_path: Path, provider: str, url: str, **options: Any) -> tuple[Path, Path]:
    program, model = HARNESSES[provider]
    require_program(program)
    if provider == "acp":
        options["command"] = [program]
    entry = {"provider": provider, "model": model, "options": {"base_url": url, "api_key_env": "MODEL_KEY", **options}}
    site = make_repository(tmp_path / "site")
    coder = resume(
        "coder", model={"key": "coder"}, workspace={"repository": "../site"}, permissions={"read_outboxes": ["ann"]}
    )
    base = make_org(tmp_path / "org", coder, PERSON, models={"coder": entry, "human": {"provider": "human"}})
    ask_worker(base, "coder", "Add a line two to src/a.txt.")
    return base, site


def set_prices(base: Path, dollars: float) -> None:
    """Give the worker's model a price in dollars per million tokens."""
    file = base / "config/models.json"
    models = json.loads(file.read_text())
    models["coder"] |= {"usd_per_million_input_tokens": dollars, "usd_per_million_output_tokens": dollars}
    file.write_text(json.dumps(models))


def add_gate(base: Path, gate: dict[str, Any]) -> None:
    """Add a gate of the organisation."""
    (base / "config/org.json").write_text(json.dumps({"gates": [gate]}))


@pytest.mark.parametrize("provider", HARNESSES)
def test_a_harness_changes_a_file_and_its_patch_is_merged(tmp_path: Path, provider: str) -> None:
    with ModelServer(SCRIPT) as server:
        base, site = make_real_org(tmp_path, provider, server.url)
        run_once(base)
        assert server.requests
    payload = outbox(base, "coder")[-1]["payload"]
    assert payload.get("status") != "failed", payload
    assert git(site, "show", "lemming/coder:src/a.txt") == "one\ntwo"
    assert payload["text"].strip() == "I changed a file."
    reply = next(line for line in journal_lines(base, 1) if line["type"] == "model_replied")
    assert reply["input_tokens"] >= 200, "both requests are counted"
    assert b"sk-the-real-key" not in b"".join(path.read_bytes() for path in base.rglob("*") if path.is_file())
    assert not verify_org(base).errors


def count_saved_results(folder: Path) -> int:
    """Return the results of calls in the sessions of Claude Code or Codex, which write them some time after a request."""
    sessions = b"".join(path.read_bytes() for path in folder.rglob("home/**/*.jsonl"))
    return sessions.count(b'"type":"tool_result"') + len(re.findall(rb'"type":"\w+_call_output"', sessions))


@pytest.mark.parametrize("provider", ["claude-code", "codex"])
def test_a_run_that_is_killed_goes_on_in_its_session_and_makes_each_edit_once(
    tmp_path: Path, state_home: Path, provider: str
) -> None:
    script = [{"run": f"echo edit {number} >> edits.txt"} for number in range(6)] + [{"say": "Six edits."}]
    # The kill comes while the reply is awaited: a command that a kill interrupts is not run again by Claude Code.
    script[3]["wait"] = 4
    with ModelServer(script) as server:
        base, site = make_real_org(tmp_path, provider, server.url)
        command = [sys.executable, "-m", "lemming", "-C", str(base)]
        subprocess.run([*command, "trust", "--yes"], check=True, capture_output=True)
        engine = subprocess.Popen([*command, "run-once"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while (len(server.requests) < 4 or count_saved_results(state_home) < 3) and engine.poll() is None:
            time.sleep(0.05)
        engine.send_signal(signal.SIGKILL)
        engine.wait()
        before = len(server.requests)
        run_once(base)
        replies = [request.replies for request in server.requests[before:]]
    assert before < 7
    assert replies[0] >= 2, "the conversation goes on where it was"
    assert git(site, "show", "lemming/coder:edits.txt").splitlines() == [f"edit {number}" for number in range(6)]
    assert outbox(base, "coder")[-1]["payload"]["text"].strip() == "Six edits."
    reply = next(line for line in journal_lines(base, 1) if line["type"] == "model_replied")
    assert reply["input_tokens"] >= 100 * len(server.requests) - 100, "requests before the kill are counted"
    assert not verify_org(base).errors


def test_a_limit_on_spending_is_what_a_run_may_cost_and_it_ends_before_the_next_request(tmp_path: Path) -> None:
    script = [{"run": f"echo edit {number} >> edits.txt", "usage": [1_000_000, 0, 0, 0]} for number in range(9)]
    with ModelServer(script) as server:
        base, site = make_real_org(tmp_path, "claude-code", server.url, max_cost_usd=100.0)
        set_prices(base, 1.0)
        add_gate(base, {"at": "spend", "dollars": 3.5, "per": "organisation", "then": "block"})
        run_once(base)
    assert 2 <= len(server.requests) <= 4, "Claude Code counts by its own prices, the gateway by those of the entry"
    payload = outbox(base, "coder")[-1]["payload"]
    assert payload["status"] == "failed"
    assert "3.5" in payload["text"]
    reply = next(line for line in journal_lines(base, 1) if line["type"] == "model_replied")
    assert round(reply["cost_usd"]) == len(server.requests)
    assert git(site, "for-each-ref", "refs/heads/lemming") == ""


def test_a_limit_in_dollars_refuses_a_run_without_a_bound(tmp_path: Path) -> None:
    with ModelServer(SCRIPT) as server:
        base, _ = make_real_org(tmp_path, "claude-code", server.url)
        set_prices(base, 1.0)
        add_gate(base, {"at": "spend", "dollars": 3.5, "per": "organisation", "then": "block"})
        run_once(base)
        assert not server.requests
    assert "max_cost_usd" in (base / "logs/ticks/00000001.jsonl").read_text()


@pytest.mark.parametrize("provider", ["claude-code", "acp"])
def test_what_a_running_harness_asks_for_waits_for_a_person_and_the_session_goes_on(
    tmp_path: Path, provider: str
) -> None:
    script = [{"run": "test -e asked.txt || echo asked > asked.txt"}] * 4 + [{"say": "I asked first."}]
    with ModelServer(script) as server:
        base, site = make_real_org(tmp_path, provider, server.url, permissions="ask")
        add_gate(base, {"at": "call", "tool": "permit", "then": "ask"})
        run_once(base)
        entry = outbox(base, "coder")[-1]
        question = entry["payload"]
        assert question["call"]["tool"] == "permit"
        assert "asked.txt" in json.dumps(question["call"]["args"]["input"])
        assert run(["-C", str(base), "approve", entry["id"], "--as", "ann"]) == 0
        run_once(base)
    payload = outbox(base, "coder")[-1]["payload"]
    assert payload["text"].strip() == "I asked first."
    assert git(site, "show", "lemming/coder:asked.txt") == "asked"
    assert not verify_org(base).errors
