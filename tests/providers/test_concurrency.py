"""How many calls of a model are under way at once: what its line says, or what its kind of server takes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from watched_server import WatchedServer

from lemming.engine import run_once
from lemming.kernel.org.config import load_config
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.runtime import Runtime
from lemming.testing import make_org, resume

Line = dict[str, Any]


@contextmanager
def holding(count: int) -> Iterator[WatchedServer]:
    """A server that answers once so many questions are there, and from then on at once."""
    server = WatchedServer(may_answer=threading.Event())

    def wait() -> None:
        for _ in range(count):
            server.came.acquire(timeout=PATIENCE_S)
        server.may_answer.set()

    watcher = threading.Thread(target=wait)
    watcher.start()
    server.start()
    yield server
    server.may_answer.set()
    server.stop()
    watcher.join()


def run(base: Path, server: WatchedServer, agents: int, line: Line, **org: Any) -> None:
    """Run a tick in which so many agents ask a model."""
    names = [f"a{number:03d}" for number in range(agents)]
    resumes = [resume(name, model={"key": "m"}, permissions={}) for name in names]
    entry = {"provider": "openai", "model": "m", "options": {"base_url": f"{server.url}/v1"}, **line}
    make_org(base, *resumes, models={"m": entry}, org={"durability": "off", **org})
    report = run_once(base)
    assert [turn.status for turn in report.turns] == ["done"] * agents, report.turns[0].reason


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("line", "org", "agents", "at_once"),
    [
        ({}, {}, 70, 64),
        ({"max_concurrent": 20}, {}, 30, 20),
        ({"max_concurrent": 3}, {}, 12, 3),
        ({"max_concurrency": 3}, {}, 12, 3),  # the old name
        ({"max_concurrent": 20}, {"max_parallel": 2}, 30, 20),
        ({}, {"max_parallel": 2}, 6, 2),
        ({}, {"max_parallel": 70}, 75, 70),
        ({}, {"executor": "serial"}, 3, 1),
        ({"provider": "llamacpp"}, {}, 12, 4),
        ({"provider": "llamacpp", "max_concurrent": 9}, {}, 12, 9),
    ],
)
def test_as_many_calls_are_under_way_as_the_line_of_the_model_takes(
    line: Line, org: Line, agents: int, at_once: int, tmp_path: Path
) -> None:
    with holding(at_once) as server:
        run(tmp_path / "org", server, agents, line, **org)
    assert (server.most, len(server.requests)) == (at_once, agents)


def test_a_line_with_little_room_holds_up_no_other(tmp_path: Path) -> None:
    with holding(12) as wide:
        narrow = WatchedServer(may_answer=wide.may_answer)  # answers once the others have asked
        narrow.start()
        names = [f"a{number:03d}" for number in range(32)]
        models = {
            key: {"provider": "openai", "options": {"base_url": f"{server.url}/v1"}, "max_concurrent": most}
            for key, server, most in (("narrow", narrow, 1), ("wide", wide, 12))
        }
        resumes = [
            resume(name, model={"key": "wide" if number >= 20 else "narrow"}, permissions={})
            for number, name in enumerate(names)
        ]
        base = make_org(tmp_path / "org", *resumes, models=models, org={"durability": "off"})
        report = run_once(base)
        narrow.stop()
    assert {turn.status for turn in report.turns} == {"done"}
    assert (narrow.most, wide.most) == (1, 12)


@pytest.mark.parametrize(
    ("provider", "options", "calls"),
    [
        ("openai", {}, 64),
        ("openai", {"base_url": "http://127.0.0.1:9999/v1"}, 64),
        ("anthropic", {}, 64),
        ("groq", {}, 64),
        ("llamacpp", {}, 4),
        ("lmstudio", {}, 4),
        ("ollama", {}, 4),
        ("vllm", {}, 4),
        ("vllm", {"base_url": "http://gpu:8000"}, 64),
        ("local", {}, 1),
        ("cli", {"command": ["true"]}, None),
    ],
)
def test_each_kind_of_server_has_its_number_of_calls_at_once(
    provider: str, options: Line, calls: int | None, tmp_path: Path
) -> None:
    backends = Runtime(Organisation(tmp_path)).backends
    assert backends.max_calls(ModelEntry(provider=provider, options=options)) == calls


def test_the_old_name_in_models_json_is_read(tmp_path: Path) -> None:
    entry = {"provider": "openai", "max_concurrency": 7}
    base = make_org(tmp_path / "org", models={"m": entry, "n": {**entry, "max_concurrent": 9}})
    models = load_config(base).models
    assert (models["m"].concurrency_limit, models["n"].concurrency_limit) == (7, 9)
