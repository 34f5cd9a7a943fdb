"""Every shape of a call that servers send, and errors in the bodies of answers: the bodies as documented."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from native_server import Json, NativeServer, chat

from lemming.capabilities.hosted_models.answer_streams import ChatStream
from lemming.capabilities.hosted_models.anthropic_provider import AnthropicMessage, AnthropicProvider
from lemming.capabilities.hosted_models.ollama_provider import OllamaProvider
from lemming.capabilities.hosted_models.openai_provider import OpenAIProvider
from lemming.capabilities.hosted_models.openai_wire import ChatCompletion, OpenAIResponse
from lemming.engine import run_once
from lemming.kernel.base.errors import RateLimited, Unavailable
from lemming.kernel.files.json_documents import adapter
from lemming.kernel.llm.model_call import call_provider
from lemming.kernel.providers import Reply, Request
from lemming.testing import journal_lines, make_org, resume

ASKED = Request("m", [{"role": "user", "content": "hi"}], deadline_s=20.0)
USED = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
OSLO = {"city": "Oslo"}


@pytest.fixture
def native() -> Iterator[NativeServer]:
    """A server of its own for each test."""
    server = NativeServer()
    server.start()
    yield server
    server.stop()


def completion(**message: Any) -> Reply:
    """Return what is read of an answer of the chat completions API."""
    choice = {"index": 0, "message": {"role": "assistant", "content": None, **message}}
    answer: ChatCompletion = adapter(ChatCompletion).validate_python({"choices": [choice], "usage": USED})
    return answer.to_reply(None)


def function(arguments: Any, name: str = "weather") -> Json:
    return {"name": name, "arguments": arguments}


@pytest.mark.parametrize(
    "message",
    [
        {"tool_calls": [{"id": "a", "type": "function", "function": function('{"city": "Oslo"}')}]},
        {"tool_calls": [{"id": "a", "type": "function", "function": function(OSLO)}]},
        {"tool_calls": [{"id": "a", "function": function('"{\\"city\\": \\"Oslo\\"}"')}]},
        {"tool_calls": [{"id": "a", "type": "function", **function(OSLO)}]},
        {"tool_calls": [{"id": "a", "function": {"name": "weather", "parameters": OSLO}}]},
        {"tool_calls": {"id": "a", "type": "function", "function": function(OSLO)}},
        {"tool_calls": [{"type": "function", "function": function(OSLO)}]},
        {"tool_calls": [{"id": None, "type": "function", "function": function(OSLO)}, "noise", 1]},
        {"function_call": function('{"city": "Oslo"}')},
    ],
    ids=["text", "object", "twice", "flat", "parameters", "one", "no id", "noise", "legacy"],
)
def test_a_call_of_a_chat_completion_is_read_in_each_shape(message: Json) -> None:
    (call,) = completion(**message).calls
    assert (call["tool"], call["args"]) == ("weather", OSLO)
    assert call["id"] in ("a", "call-1")


@pytest.mark.parametrize(
    ("arguments", "args"),
    [
        (None, {}),
        ("", {}),
        ("  ", {}),
        ('{"city": ', '{"city": '),
        ('"Oslo"', "Oslo"),
        ('"{Oslo"', '"{Oslo"'),
        ("[1]", [1]),
    ],
)
def test_arguments_that_are_no_object_stay_what_they_are(arguments: Any, args: Any) -> None:
    (call,) = completion(tool_calls=[{"id": "a", "function": function(arguments)}]).calls
    assert call["args"] == args


@pytest.mark.parametrize("plain", [None, [], {}, "weather", [{}], [{"function": None}], [{"id": "a"}]])
def test_what_is_no_call_is_none(plain: Any) -> None:
    assert completion(content="fine", tool_calls=plain).calls == ()


def test_several_calls_keep_their_order_and_have_ids_of_their_own() -> None:
    made = [{"id": identity, "function": function({"n": n})} for n, identity in enumerate(("a", "a", None))]
    calls = completion(tool_calls=made).calls
    assert [call["args"]["n"] for call in calls] == [0, 1, 2]
    assert len({call["id"] for call in calls}) == 3


def test_the_parts_of_a_message_are_its_text() -> None:
    parts = [{"type": "text", "text": "It is "}, {"type": "output_text", "text": "blue."}, {"type": "x"}]
    assert completion(content=parts).text == "It is blue."


@pytest.mark.parametrize("arguments", ['{"city": "Oslo"}', OSLO])
@pytest.mark.parametrize("content", ["Wait.", [{"type": "output_text", "text": "Wait."}]])
def test_a_response_is_read_with_its_calls(arguments: Any, content: Any) -> None:
    output = [
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": None}]},
        {"type": "message", "id": "m", "role": "assistant", "content": content},
        {"type": "function_call", "id": "f", "call_id": "a", "name": "weather", "arguments": arguments},
    ]
    answer: OpenAIResponse = adapter(OpenAIResponse).validate_python({"output": output, "status": "completed"})
    reply = answer.to_reply(None)
    assert reply.text == "Wait."
    assert reply.calls == ({"id": "a", "tool": "weather", "args": OSLO},)


@pytest.mark.parametrize("given", [OSLO, '{"city": "Oslo"}'])
def test_anthropics_calls_are_read(given: Any) -> None:
    content = [
        {"type": "text", "text": "Wait."},
        {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": given},
        {"type": "tool_use", "id": "toolu_2", "name": "weather", "input": {}},
    ]
    answer: AnthropicMessage = adapter(AnthropicMessage).validate_python(
        {"content": content, "stop_reason": "tool_use"}
    )
    assert [(call["id"], call["args"]) for call in answer.to_reply().calls] == [("toolu_1", OSLO), ("toolu_2", {})]


@pytest.mark.parametrize("arguments", [OSLO, '{"city": "Oslo"}', '"{\\"city\\": \\"Oslo\\"}"'])
def test_ollamas_calls_are_read(arguments: Any, native: NativeServer) -> None:
    made = [{"id": "call_x", "function": {"index": 0, "name": "weather", "arguments": arguments}}]
    message = {"role": "assistant", "content": "", "tool_calls": made}
    native.answers = [{"model": "m", "message": message, "done": True, "done_reason": "stop"}]
    assert call_provider(OllamaProvider(host=native.url), ASKED).calls == (
        {"id": "call-1", "tool": "weather", "args": OSLO},
    )


@pytest.mark.parametrize(
    "deltas",
    [
        [{"tool_calls": [{"index": 0, "id": "a", "function": function('{"city": "Oslo"}')}]},
         {"tool_calls": [{"index": 1, "id": "b", "function": function('{"city": "Bergen"}')}]}],
        [{"tool_calls": [{"index": 0, "id": "a", "function": function('{"city": ')}]},
         {"tool_calls": [{"index": 0, "function": {"arguments": '"Oslo"}'}}]},
         {"tool_calls": [{"index": 1, "id": "b", "function": function('{"city": "Bergen"}')}]}],
        [{"tool_calls": [{"index": 0, "id": "a", "function": function('{"city": "Oslo"}')}]},
         {"tool_calls": [{"index": 0, "id": "b", "function": function('{"city": "Bergen"}')}]}],
        [{"tool_calls": [{"id": "a", "function": function(OSLO)},
                         {"id": "b", "function": function({"city": "Bergen"})}]}],
    ],
    ids=["two", "pieces", "one index", "objects"],
)  # fmt: skip
def test_calls_that_come_in_pieces_are_put_together(deltas: list[Json]) -> None:
    stream = ChatStream(lambda _: None)
    for delta in (*deltas, {}):
        stream.feed({"choices": [{"delta": delta, "finish_reason": None if delta else "tool_calls"}]})
    answer: ChatCompletion = adapter(ChatCompletion).validate_python(stream.to_response())
    calls = answer.to_reply(None).calls
    assert [(call["id"], call["args"]["city"]) for call in calls] == [("a", "Oslo"), ("b", "Bergen")]


def test_a_legacy_call_that_comes_in_pieces_is_put_together() -> None:
    stream = ChatStream(lambda _: None)
    for piece in (function(""), {"arguments": '{"city": '}, {"arguments": '"Oslo"}'}):
        stream.feed({"choices": [{"delta": {"function_call": piece}, "finish_reason": None}]})
    stream.feed({"choices": [{"delta": {}, "finish_reason": "function_call"}]})
    answer: ChatCompletion = adapter(ChatCompletion).validate_python(stream.to_response())
    assert answer.to_reply(None).calls == ({"id": "call-1", "tool": "weather", "args": OSLO},)


# --- an error in the place of an answer -----------------------------------------------------------

FAILED: dict[str, tuple[Any, Json]] = {
    "chat": (lambda url: OpenAIProvider(base_url=f"{url}/v1"), {"usage": USED}),
    "choice": (
        lambda url: OpenAIProvider(base_url=f"{url}/v1"),
        {"usage": USED, "choices": [{"message": {"content": ""}, "finish_reason": "error",
                                     "error": {"code": 502, "message": "the model is overloaded"}}]},
    ),
    "responses": (
        lambda url: OpenAIProvider(base_url=f"{url}/v1", api="responses"),
        {"status": "failed", "output": [], "usage": {"input_tokens": 11, "output_tokens": 7}},
    ),
    "anthropic": (
        lambda url: AnthropicProvider(base_url=url), {"usage": {"input_tokens": 11, "output_tokens": 7}},
    ),
    "ollama": (lambda url: OllamaProvider(host=url), {"prompt_eval_count": 11, "eval_count": 7}),
}  # fmt: skip
ERROR = {"error": {"message": "the model is overloaded", "type": "server_error"}}


@pytest.mark.parametrize("name", FAILED)
def test_an_error_that_was_charged_is_told_as_the_providers_and_its_cost_is_kept(
    name: str, native: NativeServer
) -> None:
    make, used = FAILED[name]
    native.status, native.answers = 200, [used if name == "choice" else {**ERROR, **used}]
    reply = call_provider(make(native.url), ASKED)
    assert (reply.finish, reply.input_tokens, reply.output_tokens) == ("failed", 11, 7)
    assert reply.text == "the provider told of an error: the model is overloaded"


@pytest.mark.parametrize("name", [name for name in FAILED if name != "choice"])
def test_an_error_that_says_no_usage_is_raised_in_the_providers_words(name: str, native: NativeServer) -> None:
    native.status, native.answers = 200, [ERROR]
    with pytest.raises(Unavailable, match=r"[^:] m: the model is overloaded$"):
        call_provider(FAILED[name][0](native.url), ASKED)


def test_the_status_in_an_error_says_whether_to_wait(native: NativeServer) -> None:
    native.status, native.answers = 200, [{"error": {"code": 429, "message": "slow down"}}]
    with pytest.raises(RateLimited, match="slow down"):
        call_provider(OpenAIProvider(base_url=f"{native.url}/v1"), ASKED)


def test_an_answer_that_speaks_of_an_error_is_an_answer(native: NativeServer) -> None:
    native.status, native.answers = 200, [{**chat('{"error": "none"}'), "error": None}]
    assert call_provider(OpenAIProvider(base_url=f"{native.url}/v1"), ASKED).text == '{"error": "none"}'


def test_a_turn_ends_with_the_providers_words_and_pays_for_them(native: NativeServer, tmp_path: Path) -> None:
    native.status, native.answers = 200, [{**ERROR, "usage": USED}]
    line = {"provider": "openai", "model": "m", "options": {"base_url": f"{native.url}/v1"}}
    line |= {"per_call": 0.0, "per_1k_output_tokens": 1000.0}
    ada = resume("ada", model={"key": "real"}, credits={"max_credits": 100, "soft_cap": 100})
    base = make_org(tmp_path / "org", ada, models={"real": line})
    (turn,) = run_once(base).turns
    assert "the model is overloaded" in turn.reason
    assert len(native.received) == 1  # which is not asked again as a model with a wrong reply is
    (replied,) = [it for it in journal_lines(base, 1) if it["type"] == "model_replied"]
    assert (replied["finish"], replied["output_tokens"], replied["credits"]) == ("failed", 7, 7.0)
