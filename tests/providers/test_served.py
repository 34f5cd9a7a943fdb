"""Servers with OpenAI's API under names of their own, what no line may say of a request, and circuits."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from fault_server import FaultServer

from lemming.capabilities.pricing.prices import max_call_cost
from lemming.kernel.base.errors import CircuitOpen, ConfigError, Unavailable, UnknownModel
from lemming.kernel.llm.call_cost import compute_usage
from lemming.kernel.llm.circuit_breaker import FAILURES_TO_OPEN, Circuits, circuit_name, open_circuits
from lemming.kernel.llm.retrying_provider import RetryingLLMProvider
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.providers import Backend, Reply, Request, make_provider
from lemming.kernel.tick.model_backends import Backends
from lemming.libraries.compatible_servers import SERVERS
from lemming.queries.model_readiness import check_readiness
from lemming.testing import FrozenClock


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
    with pytest.raises(ConfigError, match="extra must not contain") as caught:
        make_provider(provider, {"extra": extra})
    assert caught.value.where == "config/models.json"
    make_provider(provider, {"extra": {"tool_choice": "auto", "top_p": 0.5, "max_tokens": None}})


def test_a_vllm_server_gets_scheme_and_path_once_and_tools_only_where_there_are_any(
    faults: FaultServer, request_: Request
) -> None:
    provider = make_provider("vllm", {"base_url": faults.url("ok")})
    assert provider.complete(request_).text
    assert "tools" not in faults.received[-1].body
    with pytest.raises(ConfigError, match=r"requires options\.base_url") as caught:
        make_provider("azure", {})
    assert "RESOURCE.openai.azure.com" in caught.value.hint


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_by_name_gets_its_key_at_its_own_address_and_nobody_else_does(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = SERVERS[name]
    own = {} if host.address else {"base_url": host.example}
    if not host.key_env:
        assert check_readiness(ModelEntry(provider=name), tmp_path).is_ready is None
        return
    entry = ModelEntry(provider=name, options=own)
    monkeypatch.delenv(host.key_env, raising=False)
    assert check_readiness(entry, tmp_path).fix == f"export {host.key_env}=..."
    monkeypatch.setenv(host.key_env, "k" * 20)
    assert check_readiness(entry, tmp_path).is_ready
    elsewhere = ModelEntry(provider=name, options={"base_url": "https://api.far.example/v1"})
    assert check_readiness(elsewhere, tmp_path).is_ready is None
    assert host.key_variable("https://api.far.example/v1", None) == ""
    assert host.key_variable("https://api.far.example/v1", "MINE") == "MINE"


def test_a_key_of_a_servers_own_is_not_sent_to_another_address(
    faults: FaultServer, request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "groq-key-of-mine-1234567")
    make_provider("groq", {"base_url": faults.url("ok")}).complete(request_)
    assert "groq-key-of-mine" not in str(faults.received[-1].headers)
    named = {"base_url": faults.url("ok"), "api_key_env": "GROQ_API_KEY"}
    make_provider("groq", named).complete(request_)
    assert "groq-key-of-mine" in str(faults.received[-1].headers)


def test_the_call_at_the_end_of_an_address_is_taken_off_and_a_404_says_what_an_address_ends_with(
    faults: FaultServer, request_: Request
) -> None:
    assert make_provider("openai", {"base_url": f"{faults.url('ok')}/chat/completions"}).complete(request_).text
    with pytest.raises(UnknownModel) as caught:
        make_provider("openai", {"base_url": faults.url("404")}).complete(request_)
    assert "ends with /v1" in caught.value.hint


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
    without = asked._replace(messages=asked.messages[1:])
    make_provider("anthropic", {"base_url": faults.url("ok"), "cache": "5m"}).complete(without)
    assert "system" not in faults.received[-1].body
    assert faults.received[-1].body["messages"] == without.messages
    with pytest.raises(ConfigError, match="cache"):
        make_provider("anthropic", {"cache": "7d"})
    priced = {"usd_per_million_input_tokens": 4.0, "usd_per_million_output_tokens": 0.0}
    plain, kept = (
        ModelEntry(provider="anthropic", options=it, **priced)
        for it in ({"cache": None}, {"cache": "5m"})  # type: ignore[arg-type]
    )
    reply = Reply("", 1_000_000, 0, 0, written_tokens=400_000)
    assert [compute_usage(it, [], reply).cost_usd for it in (plain, kept)] == [4.0, 4.4]
    worst = [max_call_cost(it, 1_000_000).dollars for it in (plain, kept)]
    assert worst == [4, 5]


@pytest.mark.parametrize("part", ["system", "tools"])
def test_a_large_constant_half_is_marked_without_a_word_of_the_line(
    part: str, faults: FaultServer, request_: Request
) -> None:
    long = "Be brief. " * 420  # 1,050 tokens
    tool = {"name": "look", "description": long, "parameters": {"type": "object"}}
    system = {"content": long} if part == "system" else {"content": "Be brief.", "tools": [tool]}
    asked = request_._replace(messages=[{"role": "system", **system}, {"role": "user", "content": "Hello."}])
    make_provider("anthropic", {"base_url": faults.url("ok")}).complete(asked)
    (said,) = faults.received[-1].body["system"]
    assert said["cache_control"] == {"type": "ephemeral", "ttl": "5m"}
    make_provider("anthropic", {"base_url": faults.url("ok"), "cache": None}).complete(asked)
    assert "cache_control" not in str(faults.received[-1].body)
    priced = {"usd_per_million_input_tokens": 4.0, "usd_per_million_output_tokens": 0.0}
    entry = ModelEntry(provider="anthropic", **priced)
    assert max_call_cost(entry, 1_000_000).dollars == 5


def test_a_provider_that_is_wrapped_alone_has_a_circuit_of_its_own(request_: Request) -> None:
    alone = RetryingLLMProvider(Down(), attempts=1)
    for _ in range(FAILURES_TO_OPEN):
        with pytest.raises(Unavailable):
            alone.complete(request_)
    with pytest.raises(CircuitOpen, match="not called") as caught:
        alone.complete(request_)
    assert "circuits.json" not in str(caught.value)


def test_an_answer_to_a_trial_closes_the_circuit(tmp_path: Path, faults: FaultServer, request_: Request) -> None:
    entry = ModelEntry(provider="openai", options={"base_url": faults.url("ok")})
    clock, name = FrozenClock(), circuit_name(entry.provider, entry.options)
    circuits = Circuits(tmp_path, clock)
    for _ in range(FAILURES_TO_OPEN):
        with pytest.raises(Unavailable), circuits.get_circuit(name).guard():
            raise Unavailable("down")
    assert [*open_circuits(tmp_path, clock.now())] == [name]
    Backends(tmp_path, clock, threading.Event(), lambda _: None, OrgSettings()).complete_once(entry, request_)
    assert open_circuits(tmp_path, clock.now()) == {}
