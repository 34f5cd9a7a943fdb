"""Answers of an unusual shape: what says something is read, and what was paid for is charged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from native_server import Json, NativeServer, chat

from lemming.capabilities.hosted_models.answer_streams import ChatStream
from lemming.capabilities.hosted_models.anthropic_provider import AnthropicProvider
from lemming.capabilities.hosted_models.native_formats import get_provider_state
from lemming.capabilities.hosted_models.ollama_provider import OllamaProvider
from lemming.capabilities.hosted_models.openai_provider import OpenAIProvider
from lemming.kernel.base.errors import Unavailable
from lemming.kernel.llm.model_call import call_provider
from lemming.kernel.providers import LLMProvider, Request

ASKED = Request("m", [{"role": "user", "content": "hi"}], deadline_s=20.0)
THINKS_IN_PARTS = [
    {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
    {"type": "text", "text": "It is "},
    {"type": "text", "text": "blue."},
]
NOT_UNDERSTOOD: dict[str, tuple[Callable[[str], LLMProvider], Json]] = {
    "chat": (
        lambda url: OpenAIProvider(base_url=f"{url}/v1"),
        {"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 7}},
    ),
    "responses": (
        lambda url: OpenAIProvider(base_url=f"{url}/v1", api="responses"),
        {"output": "blue", "usage": {"input_tokens": 11, "output_tokens": 7}},
    ),
    "anthropic": (
        lambda url: AnthropicProvider(base_url=url),
        {"content": "blue", "usage": {"input_tokens": 11, "output_tokens": 7}},
    ),
    "ollama": (
        lambda url: OllamaProvider(host=url),
        {"message": {"content": ["blue"]}, "prompt_eval_count": 11, "eval_count": 7},
    ),
}


@pytest.fixture
def native() -> Iterator[NativeServer]:
    """A server of its own for each test."""
    server = NativeServer()
    server.start()
    yield server
    server.stop()


def test_content_in_parts_is_read_and_what_was_thought_is_kept_apart(native: NativeServer) -> None:
    answer: Any = chat("")
    answer["choices"][0]["message"]["content"] = THINKS_IN_PARTS
    native.answers = [answer]
    reply = call_provider(OpenAIProvider(base_url=f"{native.url}/v1"), ASKED)
    assert (reply.text, reply.thinking) == ("It is blue.", "Hm.")


@pytest.mark.parametrize(
    ("kind", "item"),
    [
        ("anthropic", {"type": "tool_use", "id": "b", "name": "t", "input": {}}),
        ("responses", {"type": "function_call", "call_id": "b", "name": "t", "arguments": "{}"}),
    ],
)
def test_a_call_that_was_not_made_is_not_given_back(kind: str, item: Json) -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    message = {"role": "assistant", "calls": [{"id": "a"}], "kept": {kind: [thought, item]}}
    assert get_provider_state(message, kind) == [thought]


def test_content_in_parts_is_read_as_it_comes() -> None:
    heard: list[str] = []
    stream = ChatStream(heard.append)
    for part in THINKS_IN_PARTS:
        stream.feed({"choices": [{"delta": {"content": [part]}}]})
    stream.feed({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    message = stream.to_response()["choices"][0]["message"]
    assert (message["content"], message["reasoning"]) == ("It is blue.", "Hm.")
    assert heard == ["It is ", "blue."]


@pytest.mark.parametrize(("make", "answer"), NOT_UNDERSTOOD.values(), ids=NOT_UNDERSTOOD)
def test_an_answer_that_is_not_understood_is_charged_as_it_says(
    make: Callable[[str], LLMProvider], answer: Json, native: NativeServer
) -> None:
    native.answers = [answer]
    reply = call_provider(make(native.url), ASKED)
    assert (reply.text, reply.input_tokens, reply.output_tokens) == ("", 11, 7)
    assert reply.thinking.startswith("not understood: not an answer")
    assert len(native.received) == 1


@pytest.mark.parametrize(("make", "answer"), NOT_UNDERSTOOD.values(), ids=NOT_UNDERSTOOD)
def test_an_answer_that_is_none_and_says_no_usage_is_a_failure_of_the_server(
    make: Callable[[str], LLMProvider], answer: Json, native: NativeServer
) -> None:
    native.answers = [{"message": "come back later"}]
    with pytest.raises(Unavailable, match="not an answer"):
        call_provider(make(native.url), ASKED)
