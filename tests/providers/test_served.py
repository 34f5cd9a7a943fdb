"""Servers with OpenAI's API under names of their own, what no line may say of a request, and circuits."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from fault_server import FaultServer

from lemming.base.clock import FrozenClock
from lemming.errors import CircuitOpen, ConfigError, Unavailable
from lemming.llm.circuit import FAILURES_TO_OPEN, Circuits, circuit_name, open_circuits
from lemming.llm.pricing import usage_of
from lemming.llm.retrying import RetryingLLMProvider
from lemming.llm.worst import worst_of
from lemming.org.config import Org
from lemming.org.models import ModelEntry
from lemming.providers import Backend, Reply, Request, make_provider
from lemming.tick.backends import Backends


class Down(Backend):
    """A provider that is down."""

    keeps_deadline = True

    def complete(self, request: Request) -> Reply:
        """Fail."""
        raise Unavailable("down")


@pytest.mark.parametrize(
    ("provider", "extra"),
    [
        ("openai", {"tools": []}), ("openai", {"messages": []}), ("openai", {"model": "dear"}),
        ("openai", {"stream": True}), ("openai", {"n": 5}), ("openai", {"max_tokens": 100_000}),
        ("anthropic", {"tools": None}), ("anthropic", {"system": "x"}), ("openrouter", {"tools": []}),
    ],
)  # fmt: skip
def test_no_line_replaces_what_the_engine_asks(provider: str, extra: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="extra may not have") as caught:
        make_provider(provider, {"extra": extra})
    assert caught.value.where == "config/models.json"
    make_provider(provider, {"extra": {"tool_choice": "auto", "top_p": 0.5, "max_tokens": None}})


def test_a_vllm_server_gets_scheme_and_path_once_and_tools_only_where_there_are_any(
    faults: FaultServer, request_: Request
) -> None:
    provider = make_provider("vllm", {"base_url": faults.url("ok")})
    assert provider.complete(request_).text
    assert "tools" not in faults.received[-1].body
    with pytest.raises(ConfigError, match="base_url"):
        make_provider("vllm", {})


def test_what_all_turns_begin_with_is_cached_where_a_line_says_so_and_paid_for(
    faults: FaultServer, request_: Request
) -> None:
    asked = request_._replace(
        messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello."}]
    )
    make_provider("anthropic", {"base_url": faults.url("ok")}).complete(asked)
    assert faults.received[-1].body["system"] == "Be brief."
    make_provider("anthropic", {"base_url": faults.url("ok"), "cache": "5m"}).complete(asked)
    mark = {"type": "ephemeral", "ttl": "5m"}
    said = {"type": "text", "text": "Be brief.", "cache_control": mark}
    assert faults.received[-1].body["system"] == [said]
    with pytest.raises(ConfigError, match="cache"):
        make_provider("anthropic", {"cache": "7d"})
    priced = {"usd_per_million_input_tokens": 4.0, "usd_per_million_output_tokens": 0.0}
    plain, kept = (
        ModelEntry(provider="anthropic", options=it, **priced)
        for it in ({}, {"cache": "5m"})  # type: ignore[arg-type]
    )
    reply = Reply("", 1_000_000, 0, 0, written_tokens=400_000)
    assert [usage_of(it, [], reply).cost_usd for it in (plain, kept)] == [4.0, 4.4]
    worst = [worst_of(it, 1_000_000).dollars for it in (plain, kept)]
    assert worst == [4, 5]


def test_a_provider_that_is_wrapped_alone_has_a_circuit_of_its_own(request_: Request) -> None:
    alone = RetryingLLMProvider(Down(), attempts=1)
    for _ in range(FAILURES_TO_OPEN):
        with pytest.raises(Unavailable):
            alone.complete(request_)
    with pytest.raises(CircuitOpen, match="left alone") as caught:
        alone.complete(request_)
    assert "circuits.json" not in str(caught.value)


def test_an_answer_to_a_trial_closes_the_circuit(
    tmp_path: Path, faults: FaultServer, request_: Request
) -> None:
    entry = ModelEntry(provider="openai", options={"base_url": faults.url("ok")})
    clock, name = FrozenClock(), circuit_name(entry.provider, entry.options)
    circuits = Circuits(tmp_path, clock)
    for _ in range(FAILURES_TO_OPEN):
        with pytest.raises(Unavailable), circuits.circuit(name).guard():
            raise Unavailable("down")
    assert [*open_circuits(tmp_path, clock.now())] == [name]
    Backends(tmp_path, clock, threading.Event(), lambda _: None, Org()).ask_once(entry, request_)
    assert open_circuits(tmp_path, clock.now()) == {}
