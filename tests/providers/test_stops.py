"""A stop breaks off a call to a server of the user's own, and waits for one that may be paid for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from held_server import HeldServer
from patience import PATIENCE_S

from lemming.engine import run_once
from lemming.kernel.base.errors import Unavailable
from lemming.kernel.llm.model_call import call_provider
from lemming.kernel.providers import Request, make_provider
from lemming.testing import journal_lines, make_org, resume

ASKED = Request("m", [{"role": "user", "content": "hi"}], deadline_s=PATIENCE_S)


@pytest.fixture
def held() -> Iterator[HeldServer]:
    """A server of its own for each test."""
    server = HeldServer()
    server.start()
    yield server
    server.release.set()
    server.stop()


def options(name: str, held: HeldServer) -> dict[str, Any]:
    return {"host": held.url} if name == "ollama" else {"base_url": f"{held.url}/v1"}


@pytest.mark.parametrize("name", ["llamacpp", "lmstudio", "vllm", "ollama"])
def test_a_stop_breaks_off_a_call_that_nobody_bills_for(name: str, held: HeldServer) -> None:
    provider = make_provider(name, options(name, held))
    provider.stopping = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        under_way = threads.submit(call_provider, provider, ASKED)
        held.came.get(timeout=PATIENCE_S)
        provider.stopping.set()
        with pytest.raises(Unavailable, match="cancelled"):
            under_way.result(PATIENCE_S)


@pytest.mark.parametrize("further", [{}, {"api_key_env": "MINE"}])
def test_a_stop_waits_for_an_answer_that_may_be_paid_for(
    further: dict[str, str], held: HeldServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINE", "key-of-mine-1234567890")
    name = "vllm" if further else "openai"
    provider = make_provider(name, {**options(name, held), **further})
    provider.stopping = threading.Event()
    provider.stopping.set()
    held.release.set()
    assert call_provider(provider, ASKED).text == "fine"


def test_a_tick_that_was_stopped_asks_a_local_server_again(held: HeldServer, tmp_path: Path) -> None:
    line = {"provider": "llamacpp", "model": "m", "options": options("llamacpp", held)}
    ada = resume("ada", model={"key": "local"})
    base, stop = make_org(tmp_path / "org", ada, models={"local": line}), threading.Event()
    with ThreadPoolExecutor(1) as threads:
        under_way = threads.submit(run_once, base, stop=stop)
        held.came.get(timeout=PATIENCE_S)
        stop.set()
        assert not under_way.result(PATIENCE_S).is_complete
    assert {line["type"] for line in journal_lines(base, 1)}.isdisjoint({"model_replied", "model_failed"})
    held.release.set()
    assert run_once(base).is_complete
    assert held.came.get(timeout=PATIENCE_S)
