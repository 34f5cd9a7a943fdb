"""What is sent to which kind of server: tools, schemas, temperatures and caches, as the table says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from native_server import NativeServer, chat, messages

from lemming.capabilities.embedded_models.llama_provider import LocalProvider
from lemming.capabilities.hosted_models.native_formats import is_strict, to_object_root, unwrap_reply
from lemming.kernel.llm.model_call import call_provider
from lemming.kernel.providers import LLMProvider, Request, make_provider
from lemming.libraries.compatible_servers import KINDS, ModelServer

DOCS = Path(__file__).parents[2] / "docs/models.md"
TEXT = {"type": "string", "minLength": 1, "maxLength": 300}
ACTIONS: dict[str, Any] = {
    "anyOf": [
        {
            "type": "object",
            "properties": {"do": {"const": "send"}, "to": {"enum": ["ada", "bob"]}, "text": TEXT},
            "required": ["do", "to", "text"],
            "additionalProperties": False,
        },
        {"type": "object", "properties": {"do": {"const": "done"}}, "required": ["do"], "additionalProperties": False},
    ]
}
FIELDS = ACTIONS["anyOf"][1]
LOCAL = ("llamacpp", "lmstudio", "vllm", "ollama")
CHATS = [name for name in KINDS if name not in ("anthropic", "ollama")]


@pytest.fixture
def native() -> Iterator[NativeServer]:
    """A server of its own for each test."""
    server = NativeServer()
    server.start()
    yield server
    server.stop()


def make(name: str, url: str) -> LLMProvider:
    """Return a provider that asks the test's server as if it were of that kind."""
    if name == "ollama":
        return make_provider(name, {"host": url})
    provider = make_provider(name, {"base_url": url if name == "anthropic" else f"{url}/v1"})
    if name == "openai":
        provider.set_server(KINDS[name], None)  # type: ignore[attr-defined]  # at its own address
    return provider


def sent(name: str, native: NativeServer, **fields: Any) -> dict[str, Any]:
    native.answers = [chat("fine")]
    call_provider(make(name, native.url), Request("m", [{"role": "user", "content": "hi"}], agent="ada", **fields))
    return native.received[-1]


@pytest.mark.parametrize("name", KINDS)
def test_a_local_server_is_asked_for_actions_and_a_hosted_one_for_its_own_calls(name: str) -> None:
    provider = make(name, "http://127.0.0.1:9")
    assert provider.prefers_tools is (name not in LOCAL)
    assert provider.takes_tools
    assert not LocalProvider.prefers_tools


@pytest.mark.parametrize("name", CHATS)
def test_a_local_server_samples_at_zero_unless_the_line_says_otherwise(name: str, native: NativeServer) -> None:
    assert sent(name, native).get("temperature") == (0.0 if name in LOCAL else None)
    assert sent(name, native, temperature=0.7)["temperature"] == 0.7


@pytest.mark.parametrize("name", CHATS)
def test_each_kind_is_told_of_its_cache(name: str, native: NativeServer) -> None:
    body = sent(name, native)
    assert body.get("cache_prompt") is (True if name == "llamacpp" else None)
    assert body.get("prompt_cache_key") == ("ada" if name in ("openai", "azure") else None)


@pytest.mark.parametrize("name", [name for name in CHATS if KINDS[name].json == "schema"])
def test_a_choice_of_actions_has_an_object_at_its_root_for_a_hosted_server(name: str, native: NativeServer) -> None:
    wanted = sent(name, native, schema=ACTIONS)["response_format"]["json_schema"]
    assert wanted["strict"] is True
    if name in LOCAL:
        assert wanted["schema"] == ACTIONS
        return
    (choices,) = wanted["schema"]["properties"].values()
    assert wanted["schema"]["type"] == "object"
    actions = [one["properties"]["do"] for one in choices["anyOf"]]
    assert [one.get("const") or one["enum"][0] for one in actions] == ["send", "done"]
    assert ["const" in one for one in actions] == [name != "gemini"] * 2
    assert 'Length"' not in json.dumps(wanted["schema"])


def test_anthropic_gets_an_object_at_the_root(native: NativeServer) -> None:
    native.answers = [messages('{"action": {"do": "done"}}')]
    request = Request("m", [{"role": "user", "content": "hi"}], schema=ACTIONS)
    assert call_provider(make("anthropic", native.url), request).text == '{"do": "done"}'
    wanted = native.received[-1]["output_config"]["format"]["schema"]
    assert (wanted["type"], len(wanted["properties"]["action"]["anyOf"])) == ("object", 2)


def test_a_list_of_actions_is_wrapped_and_comes_back_as_a_list(native: NativeServer) -> None:
    several = {"type": "array", "items": ACTIONS, "minItems": 1, "maxItems": 3}
    native.answers = [chat('{"action": [{"do": "done"}, {"do": "done"}]}')]
    request = Request("m", [{"role": "user", "content": "hi"}], schema=several)
    assert call_provider(make("openai", native.url), request).text == '[{"do": "done"}, {"do": "done"}]'
    wanted = native.received[-1]["response_format"]["json_schema"]
    assert (wanted["strict"], wanted["schema"]["type"]) == (True, "object")
    assert wanted["schema"]["properties"]["action"]["type"] == "array"


def test_the_engine_sees_the_action_and_not_the_object_around_it(native: NativeServer) -> None:
    native.answers = [chat('{"action": {"do": "send", "to": "ada", "text": "hi"}}')]
    request = Request("m", [{"role": "user", "content": "hi"}], schema=ACTIONS)
    assert call_provider(make("openai", native.url), request).text == '{"do": "send", "to": "ada", "text": "hi"}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "done",
        '{"do": "done"}',
        '{"action": "buy"}',
        '{"action": {"price": 1}}',
        '{"action": [{"do": "done"}, 1]}',
        '{"action": {"do": "done"}, "why": "x"}',
        '{"action": {"do": "done"}',
        '[{"action": {"do": "done"}}]',
    ],
)
def test_a_reply_of_another_form_stays_as_it_is(text: str) -> None:
    assert unwrap_reply(text) == text


def test_a_schema_of_fields_keeps_its_form() -> None:
    assert to_object_root({**FIELDS, "properties": {"do": {"type": "string"}}}) == {
        **FIELDS,
        "properties": {"do": {"type": "string"}},
    }


def test_what_the_subset_does_not_list_is_told_in_the_description() -> None:
    (text,) = to_object_root({"type": "object", "properties": {"text": TEXT}})["properties"].values()
    assert text == {"type": "string", "description": "(minLength 1, maxLength 300)"}
    assert TEXT["maxLength"] == 300  # what the engine checks by is as it was


@pytest.mark.parametrize(
    "change", [{"additionalProperties": True}, {"required": []}, {"properties": {"do": {}, "at": {}}}]
)
def test_a_schema_that_leaves_something_open_is_not_sent_as_strict(change: dict[str, Any]) -> None:
    assert is_strict(ACTIONS)
    assert not is_strict({"anyOf": [{**FIELDS, **change}]})


@pytest.mark.parametrize(
    ("base_url", "kind"),
    [
        ("https://api.groq.com/openai/v1", "groq"),
        ("http://localhost:8080/v1", "llamacpp"),
        ("http://127.0.0.1:1234/v1", "lmstudio"),
        ("http://[::1]:8000/v1", "vllm"),
        ("https://a.openai.azure.com/openai/v1", "azure"),
        ("https://api.openai.com.far.example/v1", ""),
        ("http://gpu:8080/v1", ""),
    ],
)
def test_an_openai_line_at_a_known_address_is_asked_as_that_server_is(base_url: str, kind: str) -> None:
    provider: Any = make_provider("openai", {"base_url": base_url})
    known: ModelServer | None = KINDS.get(kind)
    assert provider.prefers_tools is (known.prefers_tools if known else True)
    assert provider.takes_schema is (known.json == "schema" if known else True)


@pytest.mark.parametrize(
    ("base_url", "root"),
    [
        ("http://127.0.0.1:9999/v1", "any"),
        ("http://gpu:8001/v1", "any"),
        ("http://192.168.1.7/v1", "any"),
        ("https://api.far.example/v1", "object"),
    ],
)
def test_an_unknown_server_is_given_bounds_of_texts_where_it_is_near(base_url: str, root: str) -> None:
    provider: Any = make_provider("openai", {"base_url": base_url})
    sent = provider.request_body(Request("m", [{"role": "user", "content": "hi"}], schema=ACTIONS))
    wanted = sent["response_format"]["json_schema"]["schema"]
    assert (wanted == ACTIONS) is (root == "any")


def test_the_documentation_has_the_table_as_it_is() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$", DOCS.read_text(), re.M)
    told = {name: cells for name, *cells in rows}
    assert [*told] == sorted(KINDS)
    for name, server in KINDS.items():
        tools, schemas, temperature, cache = told[name]
        assert tools.startswith("native" if server.prefers_tools else "actions"), name
        assert schemas.startswith({"schema": "schema", "object": "JSON object", "text": "no"}[server.json])
        assert ("object at its root" in schemas) is (server.json == "schema" and server.root == "object")
        assert temperature == ("none" if server.temperature is None else f"{server.temperature:g}")
        assert all(f"`{field}`" in cache for field in server.fields), name
        assert ("`prompt_cache_key`" in cache) is server.has_cache_key


@pytest.mark.parametrize(
    "answer",
    [
        {"usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 7}}},
        {"usage": {"prompt_tokens": 9, "prompt_cache_hit_tokens": 7, "prompt_cache_miss_tokens": 2}},
        {"usage": {"prompt_tokens": 9, "cached_tokens": 7}},
        {"usage": {"prompt_tokens": 9}, "timings": {"cache_n": 7, "prompt_n": 2}},
    ],
    ids=["openai", "deepseek", "moonshot", "llamacpp"],
)
def test_the_cached_share_is_read_under_each_servers_name(answer: dict[str, Any], native: NativeServer) -> None:
    native.answers = [{**chat("fine"), **answer}]
    reply = call_provider(make("openai", native.url), Request("m", [{"role": "user", "content": "hi"}]))
    assert (reply.input_tokens, reply.cached_tokens) == (9, 7)
