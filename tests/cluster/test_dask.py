"""Calls made by a real cluster of two worker processes: the same answers, and what happens when it dies."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import cluster_plugin  # noqa: F401 - registers providers
import pytest
from patience import PATIENCE_S

from lemming.capabilities.cluster import cluster_calls as cluster_calls
from lemming.capabilities.cluster.cluster_calls import DaskCalls
from lemming.cli import run
from lemming.engine import run_once
from lemming.kernel.base.errors import ConfigError, RateLimited, RequestRejected, TimedOut, Unavailable
from lemming.kernel.providers import LLMProvider, Request, make_provider
from lemming.queries.checks import environment_checks
from lemming.testing import FrozenClock, make_org, resume, say

if TYPE_CHECKING:
    from distributed import LocalCluster

REPOSITORY = Path(__file__).parents[2]
WITHOUT = """
import sys
sys.modules["{}"] = None  # importing it fails as if it were not there
from dask.__main__ import main
main()
"""
pytestmark = pytest.mark.skipif(importlib.util.find_spec("distributed") is None, reason="distributed is not installed")


@pytest.fixture(autouse=True)
def _busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a scheduler that is there all the time it needs to say so."""
    monkeypatch.setattr(cluster_calls, "SCHEDULER_TIMEOUT_S", PATIENCE_S)
    monkeypatch.setattr(cluster_calls, "WORKERS_CACHE_S", PATIENCE_S)
    monkeypatch.setattr(environment_checks, "CONNECT_S", PATIENCE_S)


def new_cluster(folder: Path, *, workers: int = 2) -> LocalCluster:
    from distributed import LocalCluster

    return LocalCluster(
        n_workers=workers,
        threads_per_worker=8,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        local_directory=str(folder),
    )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two worker processes."""
    with new_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def calls(cluster: LocalCluster) -> Iterator[DaskCalls]:
    calls = DaskCalls(cluster.scheduler_address, connect_s=PATIENCE_S)
    yield calls
    calls.close()


def provider(calls: DaskCalls, base: Path, name: str, options: dict[str, Any] | None = None) -> LLMProvider:
    """The provider of that name, asked by the cluster."""
    inner = make_provider(name, options or {}, base=base)
    return calls.wrap_provider(inner, name, options or {}, base=base, plugins=["cluster_plugin"])


def question(deadline_s: float = PATIENCE_S, **fields: Any) -> Request:
    return Request(model_name="m", messages=[{"role": "user", "content": "?"}], deadline_s=deadline_s, **fields)


def make_pipes(base: Path) -> None:
    """Make what the provider `fatal` talks through."""
    base.mkdir(exist_ok=True)
    os.mkfifo(base / "told")
    os.mkfifo(base / "go")


def contents(base: Path) -> dict[str, bytes]:
    """Return all files but the records of when and how: the journals, the logs, the settings."""
    return {
        str(path.relative_to(base)): path.read_bytes()
        for path in sorted(base.rglob("*"))
        if path.is_file() and not {"logs", "config", ".lemming"} & set(path.relative_to(base).parts)
    }


def finding(base: Path) -> dict[str, Any]:
    """Return what `lemming doctor` found out about the executor."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        run(["-C", str(base), "doctor", "--connect", "--json"])
    (found,) = (f for line in out.getvalue().splitlines() if (f := json.loads(line))["about"] == "executor")
    return dict(found)


def script(base: Path, *lines: dict[str, Any]) -> dict[str, Any]:
    """Write a script into the shared folder; return the options that name it."""
    base.mkdir(parents=True, exist_ok=True)
    (base / "script.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return {"file": "script.jsonl"}


@pytest.mark.long
def test_a_worker_answers_as_the_engine_would(calls: DaskCalls, base: Path) -> None:
    options = script(base, {"reply": "über 漢字", "input_tokens": 3, "output_tokens": 5})
    there = provider(calls, base, "scripted", options).complete(question())
    assert there == make_provider("scripted", options, base=base).complete(question())


@pytest.mark.long
def test_an_error_comes_back_as_it_was_raised(calls: DaskCalls, base: Path) -> None:
    asked = provider(calls, base, "scripted", script(base, {"error": "RateLimited"}))
    with pytest.raises(RateLimited, match="the script says so") as raised:
        asked.complete(question())
    assert (raised.value.where, raised.value.is_retryable) == ("scripted", True)


def test_a_providers_own_exception_becomes_an_error_before_it_travels(calls: DaskCalls, base: Path) -> None:
    with pytest.raises(RequestRejected, match="_OwnError") as raised:
        provider(calls, base, "unpicklable").complete(question())
    assert "cluster_plugin.py" in raised.value.where


def test_a_new_engine_does_not_get_answers_from_what_a_worker_read_before(cluster: LocalCluster, base: Path) -> None:
    texts = []
    for text in ("old", "new"):
        calls = DaskCalls(cluster.scheduler_address, connect_s=PATIENCE_S)
        texts.append(provider(calls, base, "scripted", script(base, {"reply": text})).complete(question()).text)
        calls.close()
    assert texts == ["old", "new"]


def test_a_worker_that_does_not_see_the_folder_says_what_it_needs(calls: DaskCalls, base: Path) -> None:
    asked = provider(calls, base, "scripted", script(base, {"reply": "x"}))
    (base / "script.jsonl").unlink()
    with pytest.raises(RequestRejected, match="cannot make provider scripted") as raised:
        asked.complete(question())
    assert str(base) in raised.value.hint


def test_a_call_is_given_up_at_its_deadline(calls: DaskCalls, base: Path) -> None:
    answers = {"step": 0, "reply": "x"}, {"reply": "late", "delay_s": PATIENCE_S}
    asked = provider(calls, base, "scripted", script(base, *answers))
    asked.complete(question(step=0))  # connected to from here on
    with pytest.raises(TimedOut):
        asked.complete(question(deadline_s=0.3, step=1))


def test_both_workers_make_calls_and_many_at_once(calls: DaskCalls, base: Path) -> None:
    asked = provider(calls, base, "scripted", script(base, {"reply": "x", "delay_s": 0.05}))
    with ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(lambda step: asked.complete(question(step=step)), range(16)))
    assert {reply.text for reply in replies} == {"x"}
    assert sorted(calls.count_worker_slots().values()) == [8, 8]


def test_the_call_of_a_worker_that_was_killed_is_made_by_no_other(calls: DaskCalls, base: Path) -> None:
    make_pipes(base)
    asked = provider(calls, base, "fatal")
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(asked.complete, question())
        os.kill(int((base / "told").read_text()), signal.SIGKILL)
        with pytest.raises(Unavailable, match="the worker died during the call") as raised:
            reply.result()
    assert (raised.value.may_be_paid, raised.value.is_of_backend) == (True, False)
    assert len((base / "asked").read_text().splitlines()) == 1


def test_a_limit_counts_the_call_of_a_worker_that_was_killed(cluster: LocalCluster, base: Path) -> None:
    """The dead worker's call may be paid, so a limit of two calls leaves one more, and the books say so."""
    make_pipes(base)
    limits = [{"at": "spend", "calls": 2, "per": "organisation", "then": "block"}]
    settings = {"executor": "dask", "executor_address": cluster.scheduler_address, "plugins": ["cluster_plugin"]}
    make_org(
        base,
        resume("ada", model={"key": "fatal"}),
        resume("bob", model={"key": "fatal"}),
        models={"fatal": {"provider": "fatal", "attempts": 1, "max_output_tokens": 10}},
        org={**settings, "gates": limits, "max_parallel": 1},
    )
    with ThreadPoolExecutor(1) as pool:
        ticks = pool.submit(lambda: [run_once(base), run_once(base)])
        os.kill(int((base / "told").read_text()), signal.SIGKILL)
        (base / "told").read_text()  # of the second turn
        first, second = ticks.result()
    assert "the worker died during the call" in first.turns[0].reason
    assert [turn.error for turn in second.turns] == ["LimitReached", "LimitReached"]
    assert len((base / "asked").read_text().splitlines()) == 2


def test_without_a_cluster_the_error_names_the_address(base: Path) -> None:
    calls = DaskCalls("tcp://127.0.0.1:1")
    with pytest.raises(Unavailable, match="no scheduler answers") as raised:
        provider(calls, base, "scripted", script(base, {"reply": "x"})).complete(question(deadline_s=0.5))
    assert raised.value.where == "tcp://127.0.0.1:1"
    assert "executor_address" in raised.value.hint


def test_a_cluster_without_workers_is_told_from_a_slow_model(tmp_path: Path, base: Path) -> None:
    with new_cluster(tmp_path, workers=0) as cluster:
        calls = DaskCalls(cluster.scheduler_address, connect_s=PATIENCE_S)
        assert calls.count_worker_slots() == {}  # connected to from here on
        with pytest.raises(Unavailable, match="no workers") as raised:
            provider(calls, base, "scripted", script(base, {"reply": "x"})).complete(question(deadline_s=0.3))
        assert (raised.value.may_be_paid, raised.value.is_of_backend) == (False, False)
        calls.close()


@contextlib.contextmanager
def separate_cluster(folder: Path, *, lacking: str = "nothing") -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Yield the address and the process of a scheduler with one worker; both lack a package."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    scheduler = start(lacking, "scheduler", "--host", address, "--no-dashboard")
    worker = start(lacking, "worker", address, "--no-nanny", "--no-dashboard", "--local-directory", str(folder))
    try:
        yield address, scheduler
    finally:
        for process in (worker, scheduler):
            process.kill()
            process.wait()


def start(lacking: str, *words: str) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(REPOSITORY), str(Path(__file__).parent)])
    return subprocess.Popen(
        [sys.executable, "-c", WITHOUT.format(lacking), *words],
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.long
def test_a_cluster_that_goes_away_ends_the_calls_it_had(tmp_path: Path, base: Path) -> None:
    make_pipes(base)
    with separate_cluster(tmp_path) as (address, scheduler), ThreadPoolExecutor(1) as pool:
        calls = DaskCalls(address, connect_s=PATIENCE_S)
        asked = provider(calls, base, "fatal")
        reply = pool.submit(asked.complete, question())
        (base / "told").read_text()
        scheduler.kill()
        with pytest.raises(Unavailable, match="lost"):
            reply.result()
        with pytest.raises(Unavailable, match="no scheduler answers"):
            asked.complete(question(deadline_s=0.5))
        calls.close()


def test_leaving_a_cluster_that_answers_no_more_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        asked: ClassVar[list[float]] = []

        def close(self, timeout: float) -> None:
            self.asked.append(timeout)
            raise TimeoutError(f"timed out after {timeout} s.")

    connection: Future[Any] = Future()
    connection.set_result(Gone())
    calls = DaskCalls("tcp://127.0.0.1:1")
    monkeypatch.setattr(calls, "_connection", connection)
    calls.close()
    assert Gone.asked == [1]


def test_a_cluster_without_the_package_says_so_and_lives_on(tmp_path: Path, base: Path) -> None:
    with separate_cluster(tmp_path, lacking="lemming") as (address, _):
        calls = DaskCalls(address, connect_s=PATIENCE_S)
        for _ in range(2):
            with pytest.raises(RequestRejected, match="a worker cannot run the call") as raised:
                provider(calls, base, "scripted", script(base, {"reply": "x"})).complete(question())
            assert "install lemming-engine" in raised.value.hint
        calls.close()


def test_the_tree_is_that_of_threads(cluster: LocalCluster, base: Path) -> None:
    trees = {}
    for executor in ("threads", "dask"):
        settings = {"executor": executor, "executor_address": cluster.scheduler_address}
        make_org(
            base / executor,
            resume("ada", permissions={"read_outboxes": ["bob"]}),
            resume("bob", permissions={"read_outboxes": ["ada"]}),
            script=[{"agent": "ada", "reply": say("hello, bob")}, {"reply": say("hello")}],
            org=settings,
        )
        for _ in range(2):
            report = run_once(base / executor, clock=FrozenClock())
            assert [turn.status for turn in report.turns] == ["done", "done"]
        trees[executor] = contents(base / executor)
    assert trees["dask"] == trees["threads"]
    assert len(trees["dask"]) > 8


def test_a_turn_whose_cluster_is_missing_fails_and_says_what_to_do(base: Path) -> None:
    settings = {"executor": "dask", "executor_address": "tcp://127.0.0.1:1"}
    make_org(base, resume("ada"), org=settings)
    models = json.loads((base / "config/models.json").read_text())
    for entry in models.values():
        entry.update(attempts=1, deadline_s=0.5)
    (base / "config/models.json").write_text(json.dumps(models))
    (turn,) = run_once(base).turns
    assert (turn.status, "no scheduler answers" in turn.reason) == ("failed", True)


def test_an_address_that_leads_to_another_protocol_is_refused_before_anything_runs(base: Path) -> None:
    make_org(base, resume("ada"), org={"executor": "dask", "executor_address": "http://127.0.0.1:8786"})
    with pytest.raises(ConfigError, match="executor_address"):
        run_once(base)


def test_dask_without_an_address_is_refused_before_anything_runs(base: Path) -> None:
    make_org(base, resume("ada"), org={"executor": "dask"})
    with pytest.raises(ConfigError, match="needs a cluster") as raised:
        run_once(base)
    assert "tcp://" in raised.value.problems[0].hint


def test_doctor_says_what_the_cluster_offers(cluster: LocalCluster, base: Path) -> None:
    make_org(base, resume("ada"), org={"executor": "dask", "executor_address": cluster.scheduler_address})
    found = finding(base)
    assert (found["level"], "2 workers, 16 parallel calls" in found["text"]) == ("ok", True)


@pytest.mark.long
def test_doctor_says_when_no_cluster_can_be_reached(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment_checks, "CONNECT_S", 0.5)
    make_org(base, resume("ada"), org={"executor": "dask", "executor_address": "tcp://127.0.0.1:1"})
    found = finding(base)
    assert (found["level"], "no scheduler answers" in found["text"]) == ("fail", True)
    assert "executor_address" in found["fix"]
