"""What a server does not take of a request is found out once, left out, and remembered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fault_server import ANSWER, FaultServer, Received

from lemming import engine
from lemming.capabilities.hosted_models.anthropic_provider import AnthropicProvider
from lemming.capabilities.hosted_models.ollama_provider import OllamaProvider
from lemming.capabilities.hosted_models.openai_provider import OpenAIProvider
from lemming.capabilities.hosted_models.provider_http import find_rejected_part
from lemming.capabilities.hosted_models.rejected_fields import ServerProfiles
from lemming.kernel.base.errors import Problem, RequestRejected
from lemming.kernel.journal.engine_events import ProblemFound
from lemming.kernel.providers import LLMProvider, Request, RetryingLLMProvider, make_provider
from lemming.testing import FrozenClock, journal_lines, make_org, resume

SCHEMA = {"type": "object", "properties": {"notes": {"type": "string"}}, "required": ["notes"]}


@pytest.fixture
def told() -> list[Problem]:
    """What a person was told."""
    return []


@pytest.fixture
def servers(tmp_path: Path, told: list[Problem]) -> ServerProfiles:
    """What an organisation knows of servers."""
    return ServerProfiles(tmp_path, FrozenClock(), told.append)


def known_of(base: Path) -> dict[str, list[str]]:
    plain = json.loads((base / ".lemming/servers.json").read_bytes())
    return {name: sorted(parts) for name, parts in plain.items()}


def asked(provider: LLMProvider, servers: ServerProfiles, request: Request) -> Any:
    wrapped = RetryingLLMProvider(provider, server=servers.get_profile("its name"))
    return wrapped.complete(request._replace(schema=SCHEMA, temperature=0.2))


SMALLEST = "Reply with"
"""How the question begins that finds out what a server does not take."""


def meant(received: list[Received]) -> list[Received]:
    """Return the requests for what was asked, and not those that find out what a server takes."""
    return [one for one in received if SMALLEST not in json.dumps(one.body)]


def formats(received: list[Received]) -> list[str | None]:
    received = meant(received)
    wanted = [one.body.get("response_format") or one.body.get("text", {}).get("format") for one in received]
    return [one and one["type"] for one in wanted]


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_server_that_refuses_a_schema_is_asked_for_an_object_then_for_text(
    api: Any, faults: FaultServer, servers: ServerProfiles, request_: Request, told: list[Problem]
) -> None:
    url = f"{faults.url('picky-json_schema-json_object')}/v1"
    before = len(faults.received)
    reply = asked(OpenAIProvider(base_url=url, api=api), servers, request_)
    assert reply.text == ANSWER
    assert formats(faults.received[before:]) == ["json_schema", "json_object", None]
    assert [type(error) for error in reply.earlier] == [RequestRejected, RequestRejected]
    assert [problem.severity for problem in told] == ["warning", "warning"]


def test_what_was_refused_is_not_asked_again_by_the_next_process(
    faults: FaultServer, servers: ServerProfiles, request_: Request, tmp_path: Path, told: list[Problem]
) -> None:
    url = f"{faults.url('picky-json_schema-seed-temperature-max_completion_tokens')}/v1"
    asked(OpenAIProvider(base_url=url), servers, request_)
    assert known_of(tmp_path) == {"its name m": ["json_schema", "max_completion_tokens", "seed", "temperature"]}
    before, said = len(faults.received), len(told)
    reply = asked(OpenAIProvider(base_url=url), ServerProfiles(tmp_path, FrozenClock(), told.append), request_)
    (only,) = faults.received[before:]
    assert reply.earlier == ()
    assert only.body["max_tokens"] == 2048
    assert only.body.keys() & {"seed", "temperature", "max_completion_tokens"} == set()
    assert len(told) == said


def test_deleting_the_file_has_a_server_asked_for_everything_again(
    faults: FaultServer, servers: ServerProfiles, request_: Request, tmp_path: Path, told: list[Problem]
) -> None:
    url = f"{faults.url('picky-json_schema')}/v1"
    asked(OpenAIProvider(base_url=url), servers, request_)
    (tmp_path / ".lemming/servers.json").unlink()
    before = len(faults.received)
    asked(OpenAIProvider(base_url=url), ServerProfiles(tmp_path, FrozenClock(), told.append), request_)
    assert formats(faults.received[before:]) == ["json_schema", "json_object"]


@pytest.mark.parametrize("content", [b"", b"[]", b'{"a": 1}', b'{"its name m": {"made up": {}}}', b"\xff"])
def test_a_file_that_says_nothing_of_use_counts_as_nothing(
    content: bytes, faults: FaultServer, request_: Request, tmp_path: Path, told: list[Problem]
) -> None:
    (tmp_path / ".lemming").mkdir()
    (tmp_path / ".lemming/servers.json").write_bytes(content)
    servers = ServerProfiles(tmp_path, FrozenClock(), told.append)
    url = f"{faults.url('picky-json_schema')}/v1"
    assert len(asked(OpenAIProvider(base_url=url), servers, request_).earlier) == 1


@pytest.mark.parametrize(("kind", "part"), [("azure", "prompt_cache_key"), ("vllm", "temperature")])
def test_what_the_table_of_servers_adds_is_left_out_where_a_server_refuses_it(
    kind: str, part: str, faults: FaultServer, servers: ServerProfiles, request_: Request, tmp_path: Path
) -> None:
    provider = make_provider(kind, {"base_url": f"{faults.url(f'picky-{part}')}/v1"})
    wrapped = RetryingLLMProvider(provider, server=servers.get_profile("its name"))
    before = len(faults.received)
    assert wrapped.complete(request_).text == ANSWER
    assert [part in one.body for one in meant(faults.received[before:])] == [True, False]
    assert known_of(tmp_path) == {"its name m": [part]}


def test_anthropic_is_asked_without_schema_and_temperature(
    faults: FaultServer, servers: ServerProfiles, request_: Request
) -> None:
    provider = AnthropicProvider(base_url=faults.url("picky-output_config-temperature"))
    reply = asked(provider, servers, request_)
    assert (reply.text, len(reply.earlier)) == (ANSWER, 2)
    assert meant(faults.received)[-1].body.keys() & {"output_config", "temperature"} == set()


def test_an_old_ollama_is_asked_for_json_without_a_schema(
    faults: FaultServer, servers: ServerProfiles, request_: Request
) -> None:
    reply = asked(OllamaProvider(host=faults.url("picky-format")), servers, request_)
    assert reply.text == ANSWER
    assert "format" not in meant(faults.received)[-1].body  # "json" is refused too by this one


def test_what_the_settings_ask_for_themselves_is_not_left_out(
    faults: FaultServer, servers: ServerProfiles, request_: Request
) -> None:
    url = f"{faults.url('picky-seed')}/v1"
    with pytest.raises(RequestRejected, match="seed"):
        asked(OpenAIProvider(base_url=url, extra={"seed": 7}), servers, request_)


def test_a_schema_that_is_wrong_itself_says_nothing_of_the_server(
    servers: ServerProfiles, tmp_path: Path, told: list[Problem]
) -> None:
    error = RequestRejected("HTTP 400: Invalid schema for response_format 'turn': 'x' is not permitted")
    error.refused = "json_schema"
    servers.get_profile("its name").learn_rejection("m", error)
    assert told == []
    assert not (tmp_path / ".lemming").exists()


@pytest.mark.parametrize(
    ("message", "part"),
    [
        ("HTTP 400: This model's maximum context length is 8192 tokens; response_format too", ""),
        ("HTTP 400: no credit left", ""),
        ("HTTP 400: unknown role in messages, see json_schema", "json_schema"),
        ("HTTP 422: {'loc': ['body', 'seed'], 'msg': 'Extra inputs are not permitted'}", "seed"),
        ("HTTP 400: 'response_format.type' must be 'json_schema' or 'text'", "json_schema"),
        ("HTTP 400: the seed of all evil is fine", ""),
    ],
)
def test_only_words_of_refusal_about_a_part_mean_that_part(message: str, part: str) -> None:
    assert find_rejected_part(message, ["json_schema", "seed"]) == part


def test_an_engine_says_it_once_and_the_attempt_is_in_the_journal(faults: FaultServer, tmp_path: Path) -> None:
    url = f"{faults.url('picky-json_schema')}/v1"
    line = {"provider": "openai", "model": "m", "options": {"base_url": url}}
    models = {"default": {**line, "prompt": "full", "tools": "contract"}}  # which asks for a schema
    staff = [resume(name, model={"key": "default"}) for name in ("a", "b")]
    base = make_org(tmp_path / "org", *staff, models=models, org={"executor": "serial"})
    heard: list[Any] = []
    for _ in range(2):
        engine.run_once(base, notify=heard.append)
    replied = [line for tick in (1, 2) for line in journal_lines(base, tick) if line["type"] == "model_replied"]
    assert [line.get("attempts", 1) for line in replied] == [2, 1, 1, 1]
    assert len([event for event in heard if isinstance(event, ProblemFound)]) == 1
    assert [*known_of(base).values()] == [["json_schema"]]
