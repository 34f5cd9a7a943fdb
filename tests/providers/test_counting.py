"""Tokens of a request as servers count them, without an answer: each server in its own way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from counting_server import CountingServer, words

from lemming.kernel.base.errors import Unavailable
from lemming.kernel.llm.model_call import describe_tool_calls
from lemming.kernel.providers import LLMProvider, Request, make_provider

Json = dict[str, Any]
TOOL = {"name": "see", "description": "See.", "parameters": {"type": "object", "properties": {}}}
REQUEST = Request(
    "m",
    [{"role": "system", "content": "You are ada.", "tools": [TOOL]}, {"role": "user", "content": "hello"}],
    temperature=0.5,
    schema={"type": "object", "properties": {"text": {"type": "string"}}},
)


@pytest.fixture
def server() -> Iterator[CountingServer]:
    server = CountingServer()
    server.start()
    yield server
    server.stop()


def provider(server: CountingServer, name: str = "llamacpp", **options: Any) -> LLMProvider:
    path = "" if name == "anthropic" else "/v1"
    return make_provider(name, {"base_url": f"{server.url}{path}", **options})


def test_a_server_is_asked_to_count_the_very_body_of_the_call(server: CountingServer) -> None:
    server.paths["/v1/chat/completions/input_tokens"] = {"input_tokens": 17}
    asked = provider(server)
    assert asked.count_tokens(REQUEST) == 17
    assert server.asked("/v1/chat/completions/input_tokens") == asked.to_body(REQUEST)
    assert server.asked("/v1/chat/completions/input_tokens")["tools"][0]["function"] == TOOL


def test_what_the_server_does_not_take_is_not_counted(server: CountingServer) -> None:
    server.paths["/v1/chat/completions/input_tokens"] = {"input_tokens": 17}
    asked, without = provider(server), REQUEST._replace(without=("tools", "json_schema"))
    asked.count_tokens(without)
    body = server.asked("/v1/chat/completions/input_tokens")
    assert body == asked.to_body(describe_tool_calls(without))
    assert "tools" not in body
    assert "see" in body["messages"][0]["content"]


def test_an_older_llama_cpp_renders_the_template_and_has_it_tokenized(server: CountingServer) -> None:
    server.paths["/apply-template"] = lambda body: {"prompt": " ".join(it["content"] for it in body["messages"])}
    server.paths["/tokenize"] = words
    assert provider(server).count_tokens(REQUEST) == 4
    assert server.asked("/apply-template").keys() == {"messages", "tools"}
    assert server.asked("/tokenize")["parse_special"] is True


def test_vllm_counts_a_conversation_with_its_tools(server: CountingServer) -> None:
    server.paths["/tokenize"] = lambda body: {"count": len(body["messages"]), "tokens": []}
    assert provider(server, "vllm").count_tokens(REQUEST) == 2
    assert server.asked("/tokenize").keys() == {"model", "messages", "tools"}


def test_texts_are_counted_by_the_tokenizer_of_a_server_of_ones_own(server: CountingServer) -> None:
    server.paths["/tokenize"] = words
    assert provider(server).count_texts("m", ["a b c", ""]) == [3, 0]
    assert server.asked("/tokenize")["add_special"] is False


def test_what_is_no_json_is_no_count(server: CountingServer) -> None:
    server.paths["/v1/chat/completions/input_tokens"] = b"{"
    assert provider(server).count_tokens(REQUEST) is None


def test_a_server_that_cannot_count_says_nothing(server: CountingServer) -> None:
    asked = provider(server)
    assert asked.count_tokens(REQUEST) is None
    assert asked.count_texts("m", ["a"]) is None


def test_a_hosted_server_is_asked_below_its_api_only(server: CountingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_KEY", "k")
    server.paths["/tokenize"] = words
    asked = provider(server, "openai", api_key_env="OTHER_KEY")
    assert asked.count_tokens(REQUEST) is None
    assert asked.count_texts("m", ["a"]) is None
    assert {path for path, _ in server.received} == {"/v1/chat/completions/input_tokens"}


def test_the_responses_api_counts_what_it_would_be_asked(server: CountingServer) -> None:
    server.paths["/v1/responses/input_tokens"] = {"input_tokens": 9}
    asked = provider(server, "openai", api="responses")
    assert asked.count_tokens(REQUEST) == 9
    assert server.asked("/v1/responses/input_tokens").keys() == {"model", "input", "instructions", "tools"}
    asked.count_tokens(REQUEST._replace(messages=REQUEST.messages[1:]))
    assert server.asked("/v1/responses/input_tokens").keys() == {"model", "input", "text"}


def test_anthropic_counts_the_fields_that_it_counts_by(server: CountingServer) -> None:
    server.paths["/v1/messages/count_tokens"] = {"input_tokens": 21}
    asked = provider(server, "anthropic", extra={"top_k": 5, "thinking": {"type": "disabled"}})
    assert asked.count_tokens(REQUEST) == 21
    body, whole = server.asked("/v1/messages/count_tokens"), asked.to_body(REQUEST)
    assert whole
    assert body == {key: whole[key] for key in body}
    assert whole.keys() - body.keys() == {"max_tokens", "temperature", "top_k"}


def test_a_server_that_is_not_there_is_no_answer(server: CountingServer) -> None:
    asked = provider(server)
    server.stop()
    with pytest.raises(Unavailable):
        asked.count_tokens(REQUEST)
    server.__post_init__()
    server.start()


def test_ollama_is_shown_as_it_is_asked(server: CountingServer) -> None:
    server.paths["/api/chat"] = {"message": {"content": "hi"}, "done": True}
    asked = make_provider("ollama", {"host": server.url, "num_ctx": 2048})
    asked.complete(REQUEST)
    assert server.asked("/api/chat") == {**(asked.to_body(REQUEST) or {}), "stream": False}
    assert asked.count_tokens(REQUEST) is None
