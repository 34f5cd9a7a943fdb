"""`lemming workers`: running workers on screens, and the end of one on request."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
from merge_org import make_asking_org
from terminal import typed_at
from worker_org import outbox

from lemming.capabilities.workers.attempts import get_attempt, list_running, note_running
from lemming.capabilities.workers.running_workers import list_workers, stop_worker
from lemming.engine import run_once
from lemming.kernel.base.errors import UsageError
from lemming.kernel.org.organisation import Organisation
from lemming.queries.views.agent_view import build_agent_view
from lemming.queries.views.change_token import compute_change_token

USAGE = {"input": 900, "output": 100, "cached": 0, "written": 0, "cost_usd": 0.25}
STEPS = [
    {"at": "2026-01-01T00:00:01Z", "kind": "tool", "text": "Read README", "path": ""},
    {"at": "2026-01-01T00:00:02Z", "kind": "file", "text": "edit", "path": "src/a.txt"},
]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """An organisation in which a worker ran when its engine was killed."""
    base, _ = make_asking_org(tmp_path)
    attempt = get_attempt(base, "1-coder-0")
    attempt.clone.mkdir(parents=True)
    attempt.write_json("owner.json", {"pid": 1, "host": "here"})
    steps = [STEPS[0], {**STEPS[1], "path": f"{attempt.clone}/src/a.txt"}]
    (attempt.folder / "progress.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps) + '{"at": "cut')
    (attempt.folder / "usage.jsonl").write_text(json.dumps(USAGE) + "\n" + json.dumps(USAGE) + "\n")
    facts = {"agent": "coder", "tick": 1, "call": 0, "harness": "harness", "model": "m", "workspace": "../site"}
    note_running(Organisation(base), attempt, {**facts, "branch": "lemming/coder", "since": "2026-01-01T00:00:00Z"})
    return base


def test_a_worker_whose_engine_is_gone_is_listed_as_such(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [worker] = list_workers(Organisation(base))
    assert (worker.state, worker.files, worker.cost_usd, worker.tokens) == ("gone", ["src/a.txt"], 0.5, 2000)
    assert worker.last_step == "edit src/a.txt"
    lemming = typed_at(base, capsys)
    printed = lemming("workers").out
    assert "engine is gone: finished by the next run" in printed
    assert "../site lemming/coder" in printed
    assert "$0.5000" in printed
    [facts] = lemming("workers", "--json").objects
    assert (facts["type"], facts["agent"], facts["steps"][0]["text"]) == ("worker", "coder", "Read README")


def test_files_are_found_by_their_times_if_the_harness_does_not_name_them(base: Path) -> None:
    attempt = get_attempt(base, "1-coder-0")
    (attempt.folder / "progress.jsonl").unlink()
    (attempt.clone / ".git").mkdir()
    for name, mtime in (("old.txt", 1), ("new.txt", 9), (".git/index", 9)):
        (attempt.clone / name).write_text(name)
        os.utime(attempt.clone / name, (mtime, mtime))
    attempt.write_json("attempt.json", {})
    os.utime(attempt.folder / "attempt.json", (5, 5))
    [worker] = list_workers(Organisation(base))
    assert worker.files == ["new.txt"]


def test_a_cost_without_a_price_is_unknown(base: Path) -> None:
    attempt = get_attempt(base, "1-coder-0")
    (attempt.folder / "usage.jsonl").write_text(
        json.dumps(USAGE) + "\n" + json.dumps({**USAGE, "cost_usd": None}) + "\n"
    )
    [worker] = list_workers(Organisation(base))
    assert worker.cost_usd is None


def test_the_page_of_an_agent_shows_its_worker_and_notices_each_step(base: Path) -> None:
    org = Organisation(base)
    before = compute_change_token(org)
    [worker] = build_agent_view(org, name="coder")["workers"]
    assert worker["last_step"] == "edit src/a.txt"
    assert build_agent_view(org, name="ann")["workers"] == []
    with (get_attempt(base, "1-coder-0").folder / "progress.jsonl").open("a") as file:
        file.write("\n")
    assert compute_change_token(org) != before


def test_an_agent_without_a_worker_cannot_be_stopped(base: Path) -> None:
    with pytest.raises(UsageError, match='no worker of "ann" is running'):
        stop_worker(Organisation(base), "ann", by="ann")


def test_no_worker_is_listed_without_any(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, _ = make_asking_org(tmp_path)
    assert "no worker is running" in typed_at(base, capsys)("workers").err


def test_a_stopped_worker_answers_its_request_as_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, _ = make_asking_org(tmp_path, "echo two >> src/a.txt; echo started > ../started; sleep 60", gates=[])
    org = Organisation(base)
    engine = threading.Thread(target=run_once, args=(base,))
    engine.start()
    lemming = typed_at(base, capsys)
    while not list_running(org) or not (list_running(org)[0].folder / "started").exists():
        assert engine.is_alive(), "the worker has started before the engine ends"
    [worker] = list_workers(org)
    assert (worker.state, worker.pid, worker.files) == ("running", os.getpid(), ["src/a.txt"])
    assert lemming("workers", "stop", "coder", "--as", "ann").status == 0
    engine.join(30)
    assert not engine.is_alive()
    assert list_running(org) == []
    [answer] = outbox(base, "coder")
    assert answer["payload"]["status"] == "failed"
    assert "stopped by ann" in answer["payload"]["text"]
    assert not (get_attempt(base, "1-coder-0").folder / "stop.json").exists(), "the next run is not stopped"
