"""What reaches Ollama by its own client, and vLLM as its documented request, in each form of a turn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Literal

import pytest
from native_server import NativeServer, chat, ollama
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lemming.capabilities.hosted_models.provider_http import find_rejected_part
from lemming.kernel.llm.model_call import call_provider
from lemming.kernel.providers import Image, Message, Request, make_provider

NESTED = {
    "type": "object",
    "properties": {
        "to": {"type": "string", "enum": ["ada", "bob"]},
        "lines": {"type": "array", "items": {"type": "object", "properties": {"sum": {"type": "number"}}}},
        "address": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "A note."},
    },
    "required": ["to", "address"],
    "additionalProperties": False,
}
TOOL = {"name": "bill", "description": "Write a bill.", "parameters": NESTED}
SCHEMA: dict[str, Any] = {
    "anyOf": [
        {
            "type": "object",
            "properties": {"do": {"const": "answer"}, "text": {"type": ["string", "null"], "default": None}},
            "required": ["do", "text"],
            "additionalProperties": False,
        }
    ]
}
HI: list[Message] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
CALL = {"id": "a", "tool": "bill", "args": {"to": "ada"}}
FORMS: dict[str, dict[str, Any]] = {
    "text": {"messages": HI},
    "fields": {"messages": HI, "schema": SCHEMA["anyOf"][0]},
    "actions": {"messages": HI, "schema": SCHEMA},
    "native": {"messages": [{**HI[0], "tools": [TOOL]}, HI[1]]},
    "results": {
        "messages": [
            {**HI[0], "tools": [TOOL]},
            HI[1],
            {"role": "assistant", "content": "", "calls": [CALL]},
            {"role": "tool", "call": "a", "tool": "bill", "content": "done", "success": True},
        ]
    },
    "images": {"messages": HI, "images": (Image("image/png", "AAAA"),), "images_with": "hi"},
}


@pytest.fixture
def native() -> Iterator[NativeServer]:
    """A server of its own for each test."""
    server = NativeServer()
    server.start()
    yield server
    server.stop()


def sent(name: str, form: str, native: NativeServer) -> dict[str, Any]:
    native.answers = [ollama("fine") if name == "ollama" else chat("fine")]
    options = {"host": native.url} if name == "ollama" else {"base_url": native.url}
    request = Request("m", deadline_s=20.0, max_output_tokens=99, seed=7, agent="ada", **FORMS[form])
    call_provider(make_provider(name, options), request)
    return native.received[-1]


@pytest.mark.parametrize("form", FORMS)
def test_ollamas_client_sends_the_options_and_one_way_to_have_json(form: str, native: NativeServer) -> None:
    body = sent("ollama", form, native)
    assert body["options"] == {"num_predict": 99, "seed": 7, "temperature": 0.0}
    assert (body["model"], body["stream"]) == ("m", False)
    assert body.get("format") == FORMS[form].get("schema")  # to the letter: nulls in it too
    assert bool(body.get("tools")) is (form in ("native", "results"))


def test_ollamas_client_sends_calls_and_results_by_their_tool(native: NativeServer) -> None:
    *_, call, result = sent("ollama", "results", native)["messages"]
    assert call["tool_calls"] == [{"function": {"name": "bill", "arguments": {"to": "ada"}}}]
    assert result == {"role": "tool", "tool_name": "bill", "content": "done"}


def test_ollamas_client_sends_images_with_their_message(native: NativeServer) -> None:
    assert sent("ollama", "images", native)["messages"][1] == {**HI[1], "images": ["AAAA"]}


def test_what_ollamas_client_drops_of_a_tool_stands_in_its_description(native: NativeServer) -> None:
    (tool,) = sent("ollama", "native", native)["tools"]
    arguments = tool["function"]["parameters"]["properties"]
    assert arguments["to"] == NESTED["properties"]["to"]  # type: ignore[index]
    assert arguments["lines"] == NESTED["properties"]["lines"]  # type: ignore[index]
    assert '"city": {"type": "string"}' in arguments["address"]["description"]
    assert arguments["note"]["description"].startswith("A note. JSON Schema: ")
    assert '{"type": "null"}' in arguments["note"]["description"]
    assert "description" not in json.dumps(NESTED["properties"]["address"])  # type: ignore[index]


# --- vLLM ------------------------------------------------------------------------------------------


class Strict(BaseModel):
    """A part of a request that has the documented fields and no others."""

    model_config = ConfigDict(extra="forbid")


class FunctionDefinition(Strict):
    """A function."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class Tool(Strict):
    """A tool."""

    type: Literal["function"]
    function: FunctionDefinition


class JsonSchemaFormat(Strict):
    """A named schema."""

    name: str
    description: str | None = None
    json_schema: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(Strict):
    """How the answer is to look."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None


@cache
def vllm_request() -> Any:
    """Return a model of vLLM's request, made when it is asked for: its parts are half a second to import."""
    from openai.types.chat import ChatCompletionMessageParam
    from openai.types.chat.chat_completion_stream_options_param import ChatCompletionStreamOptionsParam

    class VllmRequest(Strict):
        """The fields of vLLM's `ChatCompletionRequest` that may be of use, as its server checks them."""

        model: str
        messages: list[ChatCompletionMessageParam]
        max_completion_tokens: int
        seed: Annotated[int, Field(ge=-(2**63), lt=2**63)]
        temperature: float
        response_format: ResponseFormat | None = None
        tools: Annotated[list[Tool], Field(min_length=1)] | None = None
        stream: bool | None = None
        stream_options: ChatCompletionStreamOptionsParam | None = None

    return VllmRequest


@pytest.mark.parametrize("form", FORMS)
def test_vllm_gets_what_its_server_documents(form: str, native: NativeServer) -> None:
    body = sent("vllm", form, native)
    asked = vllm_request().model_validate(body)
    assert (asked.max_completion_tokens, asked.seed, asked.temperature) == (99, 7, 0.0)
    wanted = asked.response_format and asked.response_format.json_schema
    assert (wanted.json_schema if wanted else None) == FORMS[form].get("schema")
    assert bool(asked.tools) is (form in ("native", "results"))


def test_the_check_of_vllms_request_finds_a_field_that_it_has_not(native: NativeServer) -> None:
    body = sent("vllm", "text", native)
    with pytest.raises(ValidationError, match="cache_prompt"):
        vllm_request().model_validate({**body, "cache_prompt": True})
    with pytest.raises(ValidationError, match="at least 1 item"):
        vllm_request().model_validate({**body, "tools": []})


def test_vllm_without_a_parser_for_calls_refuses_tools() -> None:
    words = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
    assert find_rejected_part(f"HTTP 400: {words}", ["tools", "seed"]) == "tools"
