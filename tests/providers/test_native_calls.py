"""Tool calls in the providers' own forms: the real SDKs against servers that answer as the real ones do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from native_server import Json, NativeServer, chat, messages, ollama, responses

from lemming.capabilities.hosted_models.answer_streams import ChatStream, MessageStream
from lemming.capabilities.hosted_models.anthropic_provider import AnthropicMessage as Answer
from lemming.capabilities.hosted_models.anthropic_provider import AnthropicProvider
from lemming.capabilities.hosted_models.ollama_provider import OllamaProvider
from lemming.capabilities.hosted_models.openai_provider import OpenAIProvider
from lemming.capabilities.hosted_models.openai_wire import ChatCompletion
from lemming.capabilities.hosted_models.rejected_fields import ServerProfiles
from lemming.engine import run_once
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.kernel.base.errors import RequestRejected
from lemming.kernel.files.json_documents import adapter
from lemming.kernel.llm.model_call import call_provider
from lemming.kernel.providers import LLMProvider, Message, Reply, Request, RetryingLLMProvider
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say

PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS = [{"name": "file_read", "tool": "file.read", "description": "Read a file.", "parameters": PARAMETERS}]
SCHEMA = {"type": "object", "properties": {"notes": {"type": "string"}}}


@dataclass(frozen=True)
class Api:
    """One API: the backend, and how its server's answers look."""

    make: Callable[[str], LLMProvider]
    answer: Callable[..., Json]
    has_ids: bool = True
    has_text_arguments: bool = True


APIS = {
    "chat": Api(lambda url: OpenAIProvider(base_url=f"{url}/v1"), chat),
    "responses": Api(lambda url: OpenAIProvider(base_url=f"{url}/v1", api="responses"), responses),
    "anthropic": Api(lambda url: AnthropicProvider(base_url=url), messages, has_text_arguments=False),
    "ollama": Api(lambda url: OllamaProvider(host=url), ollama, has_ids=False, has_text_arguments=False),
}


@pytest.fixture
def native() -> Iterator[NativeServer]:
    """A server of its own for each test."""
    server = NativeServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture(params=list(APIS))
def api(request: pytest.FixtureRequest) -> Api:
    """Each of the APIs."""
    return APIS[request.param]


def prompt() -> list[Message]:
    return [{"role": "system", "content": "Be brief.", "tools": TOOLS}, {"role": "user", "content": "What is in it?"}]


def asked(api: Api, native: NativeServer, said: list[Message] | None = None, **fields: Any) -> Reply:
    return call_provider(api.make(native.url), Request("m", said or prompt(), deadline_s=20.0, **fields))


def again(reply: Reply, *results: tuple[str, bool]) -> list[Message]:
    """Return the messages of the next step, as the engine has them."""
    kept = {"kept": reply.kept} if reply.kept is not None else {}
    said: Message = {"role": "assistant", "content": reply.text, "calls": [*reply.calls], **kept}
    given: list[Message] = [
        {"role": "tool", "call": call["id"], "tool": call["tool"], "content": text, "success": success}
        for call, (text, success) in zip(reply.calls, results, strict=True)
    ]
    return [*prompt(), said, *given]


def test_the_tools_go_out_in_the_providers_form(api: Api, native: NativeServer) -> None:
    native.answers = [api.answer("fine")]
    assert asked(api, native).text == "fine"
    (sent,) = native.received
    (tool,) = sent["tools"]
    told = tool.get("function", tool)
    assert (told["name"], told["description"]) == ("file_read", "Read a file.")
    assert (told.get("parameters") or told.get("input_schema")) == PARAMETERS
    assert all("tools" not in message for message in sent.get("messages") or sent["input"])


def test_calls_in_parallel_come_back_in_their_order(api: Api, native: NativeServer) -> None:
    calls = [("a", "file_read", '{"path": "x.txt"}'), ("b", "file_read", '{"path": "y.txt"}')]
    native.answers = [api.answer("I look.", *calls)]
    reply = asked(api, native)
    assert reply.text == "I look."
    assert [call["args"] for call in reply.calls] == [{"path": "x.txt"}, {"path": "y.txt"}]
    assert [call["tool"] for call in reply.calls] == ["file_read"] * 2
    assert [call["id"] for call in reply.calls] == (["a", "b"] if api.has_ids else ["call-1", "call-2"])


def test_a_repeated_id_is_made_one_of_its_own(api: Api, native: NativeServer) -> None:
    native.answers = [api.answer(None, *[("same", "file_read", "{}")] * 3), api.answer("done")]
    reply = asked(api, native)
    assert len({call["id"] for call in reply.calls}) == 3
    asked(api, native, again(reply, ("1", True), ("2", True), ("3", False)))
    if api.has_ids:
        ids = [call["id"] for call in reply.calls]
        assert all(str(native.received[-1]).count(f"'{identity}'") == 2 for identity in ids)


def test_arguments_that_are_no_json_stay_text(api: Api, native: NativeServer) -> None:
    native.answers = [api.answer(None, ("a", "file_read", '{"path": "x.'), finish="length")]
    reply = asked(api, native)
    assert (reply.finish, len(reply.calls)) == ("length", 1)
    assert reply.calls[0]["args"] == ('{"path": "x.' if api.has_text_arguments else {})


def test_a_tool_that_there_is_not_is_for_the_engine_to_refuse(api: Api, native: NativeServer) -> None:
    native.answers = [api.answer(None, ("a", "make_coffee", ""))]
    assert asked(api, native).calls[0]["tool"] == "make_coffee"


def test_results_go_back_to_the_calls_they_are_of(api: Api, native: NativeServer) -> None:
    calls = [("a", "file_read", '{"path": "x"}'), ("b", "file_read", '{"path": "y"}')]
    native.answers = [api.answer(None, *calls), api.answer("done")]
    reply = asked(api, native)
    asked(api, native, again(reply, ("the x", True), ("no such file", False)))
    sent = native.received[-1].get("messages") or native.received[-1]["input"]
    answers = {
        "chat": [("a", "the x"), ("b", "no such file")],
        "responses": [("a", "the x"), ("b", "no such file")],
        "messages": [("a", "the x"), ("b", "no such file")],
        "ollama": [("file_read", "the x"), ("file_read", "no such file")],
    }[api.answer.__name__]
    assert results_in(sent) == answers


def results_in(sent: list[Json]) -> list[tuple[str, str]]:
    """Return the results in a request, whatever its form, each with what names the call."""
    found = []
    for message in sent:
        if message.get("type") == "function_call_output":
            found.append((message["call_id"], message["output"]))
        elif message.get("role") == "tool":
            found.append((message.get("tool_call_id") or message["tool_name"], message["content"]))
        elif isinstance(message.get("content"), list):
            blocks = [block for block in message["content"] if block["type"] == "tool_result"]
            found += [(block["tool_use_id"], block["content"]) for block in blocks]
    return found


def test_all_results_of_one_step_are_one_message_for_anthropic(native: NativeServer) -> None:
    native.answers = [messages("Let me see.", ("a", "t", "{}"), ("b", "t", "{}")), messages("done")]
    reply = asked(APIS["anthropic"], native)
    asked(APIS["anthropic"], native, again(reply, ("one", True), ("two", False)))
    said, given = native.received[-1]["messages"][-2:]
    assert [block["type"] for block in said["content"]] == ["text", "tool_use", "tool_use"]
    assert [block.get("is_error") for block in given["content"]] == [None, True]


def test_thinking_is_kept_apart_and_given_back_as_it_was(api: Api, native: NativeServer) -> None:
    native.answers = [api.answer(None, ("a", "t", "{}"), thought="Hm, I see."), api.answer("done")]
    reply = asked(api, native)
    assert (reply.text, reply.thinking) == ("", "Hm, I see.")
    asked(api, native, again(reply, ("one", True)))
    sent = native.received[-1]
    match api.answer.__name__:
        case "chat":
            assert sent["messages"][2]["reasoning_content"] == "Hm, I see."
        case "responses":
            assert sent["include"] == ["reasoning.encrypted_content"]
            assert [item.get("encrypted_content") for item in sent["input"]] == [None, "sealed", None, None]
        case "messages":
            thought = {"type": "thinking", "thinking": "Hm, I see.", "signature": "sig"}
            assert sent["messages"][1]["content"][0] == thought
        case "ollama":
            assert reply.kept is None


def test_an_answer_without_calls_keeps_nothing(api: Api, native: NativeServer) -> None:
    native.answers = [api.answer("fine", thought="Hm.")]
    reply = asked(api, native)
    assert (reply.calls, reply.kept, reply.thinking) == ((), None, "Hm.")


@pytest.mark.parametrize("odd", [7, [7], [None], [{"id": 1}], [{"function": 7}], [{"function": {"name": 7}}]])
def test_what_is_no_call_is_passed_over(odd: Any, native: NativeServer) -> None:
    answer = chat("fine")
    answer["choices"][0]["message"]["tool_calls"] = odd
    native.answers = [answer]
    assert (asked(APIS["chat"], native).text, asked(APIS["chat"], native).calls) == ("fine", ())


def test_without_tools_nothing_of_them_is_sent(api: Api, native: NativeServer) -> None:
    native.answers = [api.answer("fine")]
    asked(api, native, [{"role": "user", "content": "hi"}], schema=SCHEMA)
    assert not native.received[0].get("tools")
    assert "include" not in native.received[0]


REFUSALS = [
    "registry.ollama.ai/library/m does not support tools",
    '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
    "tools: Extra inputs are not permitted",
]


@pytest.mark.parametrize("why", REFUSALS)
def test_a_server_without_tools_is_told_of_them_in_the_prompt(
    why: str, api: Api, native: NativeServer, tmp_path: Path
) -> None:
    refused = {"error": {"message": why}}
    native.answers = [refused, api.answer("fine"), refused]
    servers = ServerProfiles(tmp_path, FrozenClock(), lambda _: None)
    wrapped = RetryingLLMProvider(api.make(native.url), server=servers.get_profile("its name"))
    calls = [{"id": "a", "tool": "file.read", "args": {"path": "x"}}]
    said: list[Message] = [
        *prompt(),
        {"role": "assistant", "content": "I look.", "calls": calls, "kept": [{"type": "thinking"}]},
        {"role": "tool", "call": "a", "tool": "file.read", "content": "the x", "success": True},
    ]
    assert wrapped.complete(Request("m", said, deadline_s=20.0, schema=SCHEMA)).text == "fine"
    sent = native.received[1]
    told = str(sent)
    assert not sent.get("tools")
    assert "file.read: Read a file." in told
    assert "the x" in told
    assert "thinking" not in told
    assert list(servers.rejected_parts("its name m")) == ["tools"]


ABOUT_ONE_CONVERSATION = [
    "messages[3].tool_calls: not allowed here",
    "Invalid 'tools': array too long. Expected an array with maximum length 128, but got 200.",
    "tools[7].function.name: invalid name",
    "messages with role 'tool' must be a response to a preceding message with tool_calls; not allowed",
]


@pytest.mark.parametrize("why", ABOUT_ONE_CONVERSATION)
def test_a_refusal_of_one_conversation_is_raised_and_nothing_is_learned(
    why: str, native: NativeServer, tmp_path: Path
) -> None:
    native.answers = [{"error": {"message": why}}, chat("fine")]
    servers = ServerProfiles(tmp_path, FrozenClock(), lambda _: None)
    wrapped = RetryingLLMProvider(APIS["chat"].make(native.url), server=servers.get_profile("its name"))
    with pytest.raises(RequestRejected):
        wrapped.complete(Request("m", prompt(), deadline_s=20.0, schema=SCHEMA))
    assert list(servers.rejected_parts("its name m")) == []


def test_what_the_smallest_question_does_not_confirm_is_not_learned(native: NativeServer, tmp_path: Path) -> None:
    refused = {"error": {"message": "this mix of tools and results is not supported"}}
    native.answers = [refused, chat("fine"), chat("ok")]
    servers = ServerProfiles(tmp_path, FrozenClock(), lambda _: None)
    wrapped = RetryingLLMProvider(APIS["chat"].make(native.url), server=servers.get_profile("its name"))
    reply = wrapped.complete(Request("m", prompt(), deadline_s=20.0))
    assert reply.text == "fine"
    assert list(servers.rejected_parts("its name m")) == []
    smallest = native.received[2]
    assert (len(smallest["messages"]), len(smallest["tools"])) == (1, 1)
    assert wrapped.complete(Request("m", prompt(), deadline_s=20.0)).text == "ok"
    assert native.received[3]["tools"]


def test_what_was_learned_expires(native: NativeServer, tmp_path: Path) -> None:
    refused = {"error": {"message": "m does not support tools"}}
    native.answers = [refused, chat("fine"), refused, chat("fine")]
    servers = ServerProfiles(tmp_path, FrozenClock(), lambda _: None)
    wrapped = RetryingLLMProvider(APIS["chat"].make(native.url), server=servers.get_profile("its name"))
    wrapped.complete(Request("m", prompt(), deadline_s=20.0))
    assert list(servers.rejected_parts("its name m")) == ["tools"]
    later = FrozenClock(FrozenClock().now() + timedelta(days=8))
    assert list(ServerProfiles(tmp_path, later, lambda _: None).rejected_parts("its name m")) == []


def test_no_schema_is_sent_beside_tools(api: Api, native: NativeServer) -> None:
    native.answers = [api.answer("fine")]
    asked(api, native, schema=SCHEMA)
    asked(api, native, [{"role": "user", "content": "hi"}], schema=SCHEMA)
    fields = ("response_format", "text", "output_config", "format")
    assert [any(sent.get(name) for name in fields) for sent in native.received] == [False, True]
    assert [bool(sent.get("tools")) for sent in native.received] == [True, False]


# --- in a turn, and as it is written ---------------------------------------------------------------


@pytest.mark.parametrize("name", list(APIS))
def test_a_turn_calls_tools_by_its_backend_and_replays(name: str, native: NativeServer, tmp_path: Path) -> None:
    api = APIS[name]
    final = json.dumps(say("it says: hello"))
    calls = [("a", "file_list", "{}"), ("b", "file_read", '{"path": "n.txt"}'), ("b", "no_such_tool", "{}")]
    native.answers = [api.answer("", *calls, thought="I look first."), api.answer(final)]
    url = native.url if name in ("anthropic", "ollama") else f"{native.url}/v1"
    options = {"host" if name == "ollama" else "base_url": url}
    options |= {"api": "responses"} if name == "responses" else {}
    provider = {"chat": "openai", "responses": "openai"}.get(name, name)
    models = {"real": {"provider": provider, "model": "m", "options": options, "tools": "native"}}
    permissions = {"tools": ["file_list", "file_read"]}
    ada = resume("ada", model={"key": "real"}, permissions=permissions, turn={"max_steps": 3})
    base = make_org(tmp_path / "org", ada, models=models)
    (base / "agents/ada/workspace").mkdir(parents=True)
    (base / "agents/ada/workspace/n.txt").write_text("hello")
    (turn,) = run_once(base).turns
    assert (turn.status, turn.calls, len(turn.entries)) == ("done", 2, 1)
    assert [(used["tool"], used["success"]) for used in turn.tools] == [
        ("file_list", True), ("file_read", True), ("no_such_tool", False)
    ]  # fmt: skip
    sent = native.received[-1].get("messages") or native.received[-1]["input"]
    assert [text for _, text in results_in(sent)][1] == "hello"
    first = next(line for line in journal_lines(base, 1) if line["type"] == "model_replied")
    assert first["thinking"] == "I look first."
    assert [replayed.turns for replayed in replay_ticks(base, [1])] == [1]


def test_a_fallback_without_tools_is_told_of_them_in_the_text(native: NativeServer, tmp_path: Path) -> None:
    native.answers = [{"error": {"message": "no"}}]
    options = {"base_url": f"{native.url}/v1"}
    models = {"real": {"provider": "openai", "model": "m", "options": options, "attempts": 1}}
    call = {"tool": "file_list", "args": {}}
    script = [{"step": 0, "reply": say("I look", tool_calls=[call])}, {"reply": say("done")}]
    model = {"key": "real", "fallback": ["scripted"]}
    ada = resume("ada", model=model, permissions={"tools": ["file_list"]}, turn={"max_steps": 2})
    (turn,) = run_once(make_org(tmp_path / "org", ada, models=models, script=script)).turns
    assert (turn.status, turn.calls, [used["tool"] for used in turn.tools]) == ("done", 2, ["file_list"])


def test_calls_that_come_in_pieces_are_put_together() -> None:
    chat_stream, message_stream = ChatStream(lambda _: None), MessageStream(lambda _: None)
    for index, identity in enumerate(("a", "b")):
        function = {"name": "t", "arguments": ""}
        call = {"index": index, "id": identity, "function": function}
        chat_stream.feed({"choices": [{"delta": {"tool_calls": [call]}}]})
        block = {"type": "tool_use", "id": identity, "name": "t", "input": {}}
        message_stream.feed({"type": "content_block_start", "index": index + 1, "content_block": block})
        for piece in ('{"x":', " 1}"):
            delta = {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
            chat_stream.feed({"choices": [{"delta": delta}]})
            partial = {"type": "input_json_delta", "partial_json": piece}
            message_stream.feed({"type": "content_block_delta", "index": index + 1, "delta": partial})
    message_stream.feed({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking"}})
    for delta in ({"type": "thinking_delta", "thinking": "Hm."}, {"type": "signature_delta", "signature": "s"}):
        message_stream.feed({"type": "content_block_delta", "index": 0, "delta": delta})
    chat_stream.feed({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})
    message_stream.feed({"type": "message_stop"})
    expected = [{"id": one, "tool": "t", "args": {"x": 1}} for one in ("a", "b")]
    assert [*adapter(ChatCompletion).validate_python(chat_stream.to_response()).to_reply(None).calls] == expected
    reply = adapter(Answer).validate_python(message_stream.to_response()).to_reply()
    assert ([*reply.calls], reply.thinking) == (expected, "Hm.")
    assert reply.kept["anthropic"][0] == {"type": "thinking", "thinking": "Hm.", "signature": "s"}
