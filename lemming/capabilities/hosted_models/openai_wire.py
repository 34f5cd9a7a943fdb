"""Wire format of OpenAI's two APIs: requests and answers. Pure: no connection, no SDK."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from lemming.capabilities.hosted_models.native_formats import (
    CHAT,
    RESPONSES,
    argument_text,
    chat_calls,
    chat_messages,
    collect_tools,
    function_tools,
    get_provider_state,
    is_strict,
    make_calls,
    split_content,
    to_object_root,
    with_images,
)
from lemming.capabilities.hosted_models.provider_http import describe_error, split_system, to_failed_reply
from lemming.kernel.llm.call_cost import usage_at_path
from lemming.kernel.providers import Finish, Message, Reply, Request
from lemming.libraries.compatible_servers import ModelServer

ENCRYPTED = "encrypted_content"

CACHE_KEY, _LONGEST_KEY = "prompt_cache_key", 64
_OPTIONAL = ("seed", "temperature", "max_completion_tokens", CACHE_KEY)

JsonMode = Literal["schema", "object", "text"]


def choose_json_mode(json: JsonMode, without: Collection[str]) -> JsonMode:
    """Return the JSON mode for a server after its rejections.

    >>> choose_json_mode("schema", ["json_schema"]), choose_json_mode("schema", ["json_object", "json_schema"])
    ('object', 'text')
    """
    if json == "schema" and "json_schema" in without:
        json = "object"
    return "text" if json == "object" and "json_object" in without else json


def chat_fields(request: Request, json: JsonMode, server: ModelServer) -> dict[str, Any]:
    """Return the body of a chat completions request. A request with tools has no schema."""
    without = request.without
    limit = "max_tokens" if "max_completion_tokens" in without else "max_completion_tokens"
    fields: dict[str, Any] = {
        "model": request.model_name,
        "messages": with_images([*chat_messages(request.messages)], request, "chat"),
        limit: request.max_output_tokens,
    }
    if "seed" not in without:
        fields["seed"] = request.seed
    fields |= _common_fields(request, server)
    if tools := function_tools(request.messages):
        fields["tools"] = tools
    elif request.schema is not None and json == "schema":
        json_schema = {"name": "turn", **_strict_schema(request.schema, server)}
        fields["response_format"] = {"type": "json_schema", "json_schema": json_schema}
    elif request.schema is not None and json == "object":
        fields["response_format"] = {"type": "json_object"}
    return fields


def _common_fields(request: Request, server: ModelServer) -> dict[str, Any]:
    """Return the fields shared by both APIs: the fields of the server's profile, and the temperature."""
    without, fields = request.without, dict(server.fields)
    temperature = server.temperature if request.temperature is None else request.temperature
    if temperature is not None and "temperature" not in without:
        fields["temperature"] = temperature
    # An agent's requests begin alike, and one key keeps them at one machine with its cache.
    if server.has_cache_key and request.agent and CACHE_KEY not in without:
        fields[CACHE_KEY] = request.agent[:_LONGEST_KEY]
    return fields


def _strict_schema(schema: dict[str, Any], server: ModelServer) -> dict[str, Any]:
    wire_schema = to_object_root(schema, has_const=server.has_const) if server.root == "object" else schema
    return {"strict": is_strict(wire_schema), "schema": wire_schema}


def responses_fields(request: Request, json: JsonMode, server: ModelServer) -> dict[str, Any]:
    """Return the body of a responses request. A request with tools has no schema."""
    system, messages = split_system(request.messages)
    fields: dict[str, Any] = {
        "model": request.model_name,
        "input": with_images([item for message in messages for item in _input_items(message)], request, "responses"),
        "max_output_tokens": request.max_output_tokens,
        "store": False,  # nor are prompts kept there
    }
    if system:
        fields["instructions"] = system
    fields |= _common_fields(request, server)
    if tools := collect_tools(request.messages):
        # Strict would have every argument required, which tools do not say.
        fields["tools"] = [{"type": "function", "strict": False, **tool} for tool in tools]
        if ENCRYPTED not in request.without:  # without it, the model's reasoning is lost between two calls
            fields["include"] = ["reasoning.encrypted_content"]
    elif request.schema is not None and json == "schema":
        text_format = {"type": "json_schema", "name": "turn", **_strict_schema(request.schema, server)}
        fields["text"] = {"format": text_format}
    elif request.schema is not None and json == "object":
        fields["text"] = {"format": {"type": "json_object"}}
    return fields


def _input_items(message: Message) -> list[dict[str, Any]]:
    if message["role"] == "tool":
        result = {"call_id": message["call"], "output": message["content"]}
        return [{"type": "function_call_output", **result}]
    if kept_items := get_provider_state(message, RESPONSES):
        return list(kept_items)
    plain = {"role": message["role"], "content": message["content"]}
    calls = [
        {"type": "function_call", "call_id": call["id"], "name": call["tool"], "arguments": argument_text(call)}
        for call in message.get("calls", ())
    ]
    return [*([plain] if message["content"] or not calls else []), *calls]


def iter_droppable_parts(fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield the parts of a request a server may reject, named as in `Request.without`.

    >>> list(iter_droppable_parts(dict(seed=1, response_format={"type": "json_object"})))
    ['json_object', 'seed']
    """
    response_format = fields.get("response_format") or fields.get("text", {}).get("format")
    if response_format:
        yield response_format["type"]
    if fields.get("include"):
        yield ENCRYPTED
    if fields.get("tools"):
        yield "tools"
    yield from (name for name in _OPTIONAL if name in fields)


_FINISHES: dict[str, Finish] = {"length": "length", "content_filter": "refusal"}


@dataclass(frozen=True)
class _ChatMessage:
    content: str | list[Any] | None = None  # text, or parts of which some are reasoning
    refusal: str | None = None
    tool_calls: Any = None
    reasoning_content: Any = None  # servers use different keys; each wants its own back
    reasoning: Any = None
    reasoning_details: Any = None
    function_call: Any = None  # the form before `tool_calls`

    def native_fields(self) -> dict[str, Any]:
        """Return the fields of a `Reply` for tool calls and thinking."""
        names = ("reasoning_content", "reasoning", "reasoning_details")
        reasoning_fields = {name: value for name in names if (value := getattr(self, name)) is not None}
        calls = chat_calls(self.tool_calls or self.function_call)
        thought = self.reasoning_content or self.reasoning or split_content(self.content)[1]
        return {
            "calls": calls,
            "thinking": thought if isinstance(thought, str) else "",
            "kept": {CHAT: reasoning_fields} if calls and reasoning_fields else None,
        }


@dataclass(frozen=True)
class _Choice:
    message: _ChatMessage
    finish_reason: Any = None
    error: Any = None  # of the provider behind a router


@dataclass(frozen=True)
class ChatCompletion:
    """Answer of the chat completions API, limited to the fields in use."""

    choices: Annotated[list[_Choice], Field(min_length=1)]
    usage: Any = None  # an answer is paid for, whatever is odd about these four
    model: Any = None
    id: Any = None
    timings: Any = None
    has_failed: ClassVar[bool] = False

    def to_reply(self, request_id: str | None) -> Reply:
        """Return the answer as a reply with its usage."""
        choice = self.choices[0]
        usage = {"usage": self.usage, "timings": self.timings}
        counts = (usage_at_path(usage, *path) for path in _CACHED)
        reply = Reply(
            text=split_content(choice.message.content)[0],
            input_tokens=usage_at_path(self.usage, "prompt_tokens"),
            output_tokens=usage_at_path(self.usage, "completion_tokens"),
            cached_tokens=next((count for count in counts if count is not None), None),
            finish="refusal" if choice.message.refusal else _FINISHES.get(str(choice.finish_reason), "stop"),
            model=str(self.model or ""),
            request_id=str(request_id or self.id or ""),
            **choice.message.native_fields(),
        )
        if choice.error or choice.finish_reason == "error":
            return to_failed_reply(reply, describe_error(choice.error))
        return reply


_CACHED = (
    ("usage", "prompt_tokens_details", "cached_tokens"),
    ("usage", "prompt_cache_hit_tokens"),  # DeepSeek
    ("usage", "cached_tokens"),  # Moonshot
    ("timings", "cache_n"),  # llama.cpp before it had the first
)


@dataclass(frozen=True)
class _ContentPart:
    type: str
    text: Any = ""

    def __str__(self) -> str:
        return self.text if isinstance(self.text, str) else ""


@dataclass(frozen=True)
class _OutputItem:
    type: str
    content: list[_ContentPart] | str | None = None  # some servers send a message's text alone
    summary: list[_ContentPart] | None = None
    call_id: Any = None
    name: Any = None
    arguments: Any = None
    encrypted_content: Any = None
    id: Any = None

    @property
    def parts(self) -> list[_ContentPart]:
        """Parts of a message. A bare text is a single part."""
        content = self.content or []
        return [_ContentPart("output_text", content)] if isinstance(content, str) else content

    def to_request_items(self, call: Mapping[str, Any] | None) -> list[dict[str, Any]]:
        """Return the item as sent in the next request of the turn. `call` is the call in this item."""
        if call is not None:
            call_fields = {"call_id": call["id"], "name": call["tool"], "arguments": argument_text(call)}
            return [{"type": "function_call", **call_fields}]
        if self.type == "message":
            return [{"role": "assistant", "content": "".join(map(str, self.parts))}]
        if self.type == "reasoning" and self.encrypted_content:
            summary = [{"type": part.type, "text": str(part)} for part in self.summary or []]
            return [
                {"type": "reasoning", "id": self.id, "summary": summary, "encrypted_content": self.encrypted_content}
            ]
        return []


@dataclass(frozen=True)
class _IncompleteDetails:
    reason: str | None = None


@dataclass(frozen=True)
class OpenAIResponse:
    """Answer of the responses API, limited to the fields in use."""

    output: list[_OutputItem]
    status: str | None = None
    incomplete_details: _IncompleteDetails | None = None
    usage: Any = None  # an answer is paid for, whatever is odd about these three
    model: Any = None
    id: Any = None

    @property
    def has_failed(self) -> bool:
        """Return True if the server abandoned the answer."""
        return self.status == "failed"

    def to_reply(self, request_id: str | None) -> Reply:
        """Return the answer as a reply with its usage."""
        reason = self.incomplete_details.reason if self.incomplete_details else ""
        is_refused = bool(self._list_parts("refusal")) or reason == "content_filter"
        return Reply(
            text="".join(map(str, self._list_parts("output_text"))),
            input_tokens=usage_at_path(self.usage, "input_tokens"),
            output_tokens=usage_at_path(self.usage, "output_tokens"),
            cached_tokens=usage_at_path(self.usage, "input_tokens_details", "cached_tokens"),
            finish="refusal" if is_refused else "length" if self.status == "incomplete" else "stop",
            model=str(self.model or ""),
            request_id=str(request_id or self.id or ""),
            **self._native_fields(),
        )

    def _native_fields(self) -> dict[str, Any]:
        call_items = [item for item in self.output if item.type == "function_call" and isinstance(item.name, str)]
        calls = make_calls((item.call_id, item.name, item.arguments) for item in call_items)
        by_item = {id(item): call for item, call in zip(call_items, calls, strict=True)}
        kept_items = [input_item for item in self.output for input_item in item.to_request_items(by_item.get(id(item)))]
        thoughts = [str(part) for item in self.output if item.type == "reasoning" for part in item.summary or []]
        return {"calls": calls, "thinking": "\n\n".join(thoughts), "kept": {RESPONSES: kept_items} if calls else None}

    def _list_parts(self, kind: str) -> list[_ContentPart]:
        messages = [item for item in self.output if item.type == "message"]
        return [part for item in messages for part in item.parts if part.type == kind]
