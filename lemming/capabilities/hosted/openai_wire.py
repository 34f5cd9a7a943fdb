"""What OpenAI's two APIs are asked, and how their answers are read. Pure: no connection, no SDK."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from lemming.capabilities.hosted.http import error_words, failed_reply, split_system
from lemming.capabilities.hosted.native import (
    CHAT,
    RESPONSES,
    argument_text,
    chat_calls,
    chat_messages,
    function_tools,
    kept_of,
    made,
    split_content,
    tools_of,
    with_images,
)
from lemming.capabilities.hosted.schemas import is_strict, to_object_root
from lemming.capabilities.hosted.servers import ModelServer
from lemming.kernel.llm.tokens import tokens_at
from lemming.kernel.providers import Finish, Message, Reply, Request

ENCRYPTED = "encrypted_content"

CACHE_KEY, _LONGEST_KEY = "prompt_cache_key", 64
_OPTIONAL = ("seed", "temperature", "max_completion_tokens", CACHE_KEY)

JsonMode = Literal["schema", "object", "text"]


def stepped_down(json: JsonMode, without: Collection[str]) -> JsonMode:
    """Return how a server is asked for JSON that refused some ways.

    >>> stepped_down("schema", ["json_schema"]), stepped_down("schema", ["json_object", "json_schema"])
    ('object', 'text')
    """
    if json == "schema" and "json_schema" in without:
        json = "object"
    return "text" if json == "object" and "json_object" in without else json


def chat_fields(request: Request, json: JsonMode, server: ModelServer) -> dict[str, Any]:
    """Return a request to the chat completions API, with no schema beside tools."""
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
        wanted = {"name": "turn", **_strict_schema(request.schema, server)}
        fields["response_format"] = {"type": "json_schema", "json_schema": wanted}
    elif request.schema is not None and json == "object":
        fields["response_format"] = {"type": "json_object"}
    return fields


def _common_fields(request: Request, server: ModelServer) -> dict[str, Any]:
    """Return the fields that both APIs have: what the table of servers says, and the temperature."""
    without, fields = request.without, dict(server.fields)
    temperature = server.temperature if request.temperature is None else request.temperature
    if temperature is not None and "temperature" not in without:
        fields["temperature"] = temperature
    # An agent's requests begin alike, and one key keeps them at one machine with its cache.
    if server.has_cache_key and request.agent and CACHE_KEY not in without:
        fields[CACHE_KEY] = request.agent[:_LONGEST_KEY]
    return fields


def _strict_schema(schema: dict[str, Any], server: ModelServer) -> dict[str, Any]:
    sent = to_object_root(schema, has_const=server.has_const) if server.root == "object" else schema
    return {"strict": is_strict(sent), "schema": sent}


def responses_fields(request: Request, json: JsonMode, server: ModelServer) -> dict[str, Any]:
    """Return a request to the responses API, with no schema beside tools."""
    system, messages = split_system(request.messages)
    fields: dict[str, Any] = {
        "model": request.model_name,
        "input": with_images(
            [item for message in messages for item in _input_items(message)], request, "responses"
        ),
        "max_output_tokens": request.max_output_tokens,
        "store": False,  # nor are prompts kept there
    }
    if system:
        fields["instructions"] = system
    fields |= _common_fields(request, server)
    if tools := tools_of(request.messages):
        # Strict would have every argument required, which tools do not say.
        fields["tools"] = [{"type": "function", "strict": False, **tool} for tool in tools]
        if ENCRYPTED not in request.without:  # without it, what the model thought is lost between two calls
            fields["include"] = ["reasoning.encrypted_content"]
    elif request.schema is not None and json == "schema":
        wanted = {"type": "json_schema", "name": "turn", **_strict_schema(request.schema, server)}
        fields["text"] = {"format": wanted}
    elif request.schema is not None and json == "object":
        fields["text"] = {"format": {"type": "json_object"}}
    return fields


def _input_items(message: Message) -> list[dict[str, Any]]:
    """Return a message as items of the responses API."""
    if message["role"] == "tool":
        result = {"call_id": message["call"], "output": message["content"]}
        return [{"type": "function_call_output", **result}]
    if kept := kept_of(message, RESPONSES):
        return list(kept)
    plain = {"role": message["role"], "content": message["content"]}
    calls = [
        {
            "type": "function_call",
            "call_id": call["id"],
            "name": call["tool"],
            "arguments": argument_text(call),
        }
        for call in message.get("calls", ())
    ]
    return [*([plain] if message["content"] or not calls else []), *calls]


def parts_of(fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield which parts of a request a server may refuse and be asked without, as `Request.without` has them.

    >>> list(parts_of({"seed": 1, "response_format": {"type": "json_object"}}))
    ['json_object', 'seed']
    """
    wanted = fields.get("response_format") or fields.get("text", {}).get("format")
    if wanted:
        yield wanted["type"]
    if fields.get("include"):
        yield ENCRYPTED
    if fields.get("tools"):
        yield "tools"
    yield from (name for name in _OPTIONAL if name in fields)


_FINISHES: dict[str, Finish] = {"length": "length", "content_filter": "refusal"}


@dataclass(frozen=True)
class _ChatMessage:
    content: str | list[Any] | None = None  # text, or parts of which some are what was thought
    refusal: str | None = None
    tool_calls: Any = None
    reasoning_content: Any = None  # servers differ in what they call it; each wants its own back
    reasoning: Any = None
    reasoning_details: Any = None
    function_call: Any = None  # the form before `tool_calls`

    def native(self) -> dict[str, Any]:
        """Return the fields of a `Reply` that are about tool calls and thinking."""
        names = ("reasoning_content", "reasoning", "reasoning_details")
        kept = {name: found for name in names if (found := getattr(self, name)) is not None}
        calls = chat_calls(self.tool_calls or self.function_call)
        thought = self.reasoning_content or self.reasoning or split_content(self.content)[1]
        return {
            "calls": calls,
            "thinking": thought if isinstance(thought, str) else "",
            "kept": {CHAT: kept} if calls and kept else None,
        }


@dataclass(frozen=True)
class _Choice:
    message: _ChatMessage
    finish_reason: Any = None
    error: Any = None  # of the provider behind a router


@dataclass(frozen=True)
class Completion:
    """An answer of the chat completions API: the parts of it that are read."""

    choices: Annotated[list[_Choice], Field(min_length=1)]
    usage: Any = None  # an answer is paid for, whatever is odd about these four
    model: Any = None
    id: Any = None
    timings: Any = None
    failed: ClassVar[bool] = False

    def reply(self, request_id: str | None) -> Reply:
        """Return the answer with its usage."""
        choice = self.choices[0]
        reply = self._reply(choice, request_id)
        if choice.error or choice.finish_reason == "error":
            return failed_reply(reply, error_words(choice.error))
        return reply

    def _reply(self, choice: _Choice, request_id: str | None) -> Reply:
        return Reply(
            text=split_content(choice.message.content)[0],
            input_tokens=tokens_at(self.usage, "prompt_tokens"),
            output_tokens=tokens_at(self.usage, "completion_tokens"),
            cached_tokens=self._cached_tokens(),
            finish="refusal" if choice.message.refusal else _FINISHES.get(str(choice.finish_reason), "stop"),
            model=str(self.model or ""),
            request_id=str(request_id or self.id or ""),
            **choice.message.native(),
        )

    def _cached_tokens(self) -> int | None:
        """Return the tokens of the prompt that came from a cache, by the names that servers have for them."""
        usage = {"usage": self.usage, "timings": self.timings}
        counts = (tokens_at(usage, *place) for place in _CACHED)
        return next((count for count in counts if count is not None), None)


_CACHED = (
    ("usage", "prompt_tokens_details", "cached_tokens"),
    ("usage", "prompt_cache_hit_tokens"),  # DeepSeek
    ("usage", "cached_tokens"),  # Moonshot
    ("timings", "cache_n"),  # llama.cpp before it had the first
)


@dataclass(frozen=True)
class _Part:
    type: str
    text: Any = ""

    def __str__(self) -> str:
        return self.text if isinstance(self.text, str) else ""


@dataclass(frozen=True)
class _Item:
    """One item of a response."""

    type: str
    content: list[_Part] | str | None = None  # some servers send a message's text alone
    summary: list[_Part] | None = None
    call_id: Any = None
    name: Any = None
    arguments: Any = None
    encrypted_content: Any = None
    id: Any = None

    @property
    def parts(self) -> list[_Part]:
        """The parts of a message, whose text alone is one."""
        content = self.content or []
        return [_Part("output_text", content)] if isinstance(content, str) else content

    def again(self, call: Mapping[str, Any] | None) -> list[dict[str, Any]]:
        """Return the item as the next request of the turn has it; `call` is the call that it makes."""
        if call is not None:
            named = {"call_id": call["id"], "name": call["tool"], "arguments": argument_text(call)}
            return [{"type": "function_call", **named}]
        if self.type == "message":
            return [{"role": "assistant", "content": "".join(map(str, self.parts))}]
        if self.type == "reasoning" and self.encrypted_content:
            summary = [{"type": part.type, "text": str(part)} for part in self.summary or []]
            return [
                {
                    "type": "reasoning",
                    "id": self.id,
                    "summary": summary,
                    "encrypted_content": self.encrypted_content,
                }
            ]
        return []


@dataclass(frozen=True)
class _Incomplete:
    reason: str | None = None


@dataclass(frozen=True)
class Response:
    """An answer of the responses API: the parts of it that are read."""

    output: list[_Item]
    status: str | None = None
    incomplete_details: _Incomplete | None = None
    usage: Any = None  # an answer is paid for, whatever is odd about these three
    model: Any = None
    id: Any = None

    @property
    def failed(self) -> bool:
        """Whether the server gave up on it."""
        return self.status == "failed"

    def reply(self, request_id: str | None) -> Reply:
        """Return the answer with its usage."""
        return Reply(
            text="".join(map(str, self.parts("output_text"))),
            input_tokens=tokens_at(self.usage, "input_tokens"),
            output_tokens=tokens_at(self.usage, "output_tokens"),
            cached_tokens=tokens_at(self.usage, "input_tokens_details", "cached_tokens"),
            finish=self.finish(),
            model=str(self.model or ""),
            request_id=str(request_id or self.id or ""),
            **self._native(),
        )

    def _native(self) -> dict[str, Any]:
        """Return the fields of a `Reply` that are about tool calls and thinking."""
        asked = [item for item in self.output if item.type == "function_call" and isinstance(item.name, str)]
        calls = made((item.call_id, item.name, item.arguments) for item in asked)
        by_item = {id(item): call for item, call in zip(asked, calls, strict=True)}
        kept = [again for item in self.output for again in item.again(by_item.get(id(item)))]
        thoughts = [
            str(part) for item in self.output if item.type == "reasoning" for part in item.summary or []
        ]
        return {
            "calls": calls,
            "thinking": "\n\n".join(thoughts),
            "kept": {RESPONSES: kept} if calls else None,
        }

    def parts(self, kind: str) -> list[_Part]:
        """Return the parts of the messages that are of one kind."""
        messages = [item for item in self.output if item.type == "message"]
        return [part for item in messages for part in item.parts if part.type == kind]

    def finish(self) -> Finish:
        """Return how the answer ended."""
        reason = self.incomplete_details.reason if self.incomplete_details else ""
        if self.parts("refusal") or reason == "content_filter":
            return "refusal"
        return "length" if self.status == "incomplete" else "stop"
