"""Provider for Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from lemming.capabilities.hosted_models.answer_streams import MessageStream
from lemming.capabilities.hosted_models.native_formats import (
    ANTHROPIC,
    arguments_object,
    collect_tools,
    get_provider_state,
    group_tool_results,
    make_calls,
    to_object_root,
    unwrap_reply,
    with_images,
)
from lemming.capabilities.hosted_models.provider_http import split_system
from lemming.capabilities.hosted_models.sdk_common import SdkBackend
from lemming.kernel.llm.call_cost import estimate_prompt_tokens, usage_at_path
from lemming.kernel.providers import Finish, Reply, Request
from lemming.libraries.streaming import DeltaCallback

if TYPE_CHECKING:
    import httpx2
    from anthropic import AsyncAnthropic

_OFFICIAL_API = ("ANTHROPIC_API_KEY", "anthropic.com")


class AnthropicProvider(SdkBackend["AsyncAnthropic"]):
    """Provider for Anthropic's API, or with `base_url` for any compatible server.

    A server at `base_url` gets no key unless `api_key_env` names one. `cache`: lifetime of the cached prompt
    prefix of an agent's turns. "auto" means five minutes for large prefixes; null disables caching. `extra`
    holds additional request fields; null removes a field. `batches`: the server has the batch API. With null,
    Anthropic itself has the API, and a server at `base_url` has not.
    """

    name = "anthropic"
    without_schema = 'options.extra to {"output_config": null}'
    takes_extra = True
    takes_schema = True
    takes_tools = True
    prefers_tools = True
    takes_images = True
    context_tokens = 200_000
    request_id_header = "request-id"
    _path = "/v1/messages"

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key_env: str | None = None,
        cache: Literal["auto", "5m", "1h"] | None = "auto",
        extra: dict[str, Any] | None = None,
        batches: bool | None = None,
    ) -> None:
        self._cache = cache
        super().__init__(
            base_url=base_url, api_key_env=api_key_env, official_api=_OFFICIAL_API, extra=extra, batches=batches
        )

    def _make_client(self, http_client: httpx2.AsyncClient, key: str) -> AsyncAnthropic:
        from anthropic import AsyncAnthropic

        return AsyncAnthropic(
            api_key=key,
            base_url=self._base_url,
            timeout=None,  # deadlines and retries are ours
            max_retries=0,
            open_telemetry=False,
            http_client=http_client,
        )

    def _make_stream(self, on_delta: DeltaCallback) -> MessageStream:
        return MessageStream(on_delta)

    def parse_reply(self, body: bytes, request_id: str | None, model_name: str) -> Reply:
        """Return the reply in the body of an answer. Raises: ProviderError for a malformed answer."""
        answer = self.parse_answer(model_name, AnthropicMessage, body)
        return answer if isinstance(answer, Reply) else answer.to_reply(request_id, model_name)

    def _sdk_module(self) -> Any:
        import anthropic

        return anthropic

    def _request_fields(self, request: Request) -> dict[str, Any]:
        from anthropic import transform_schema

        system, messages = split_system(request.messages)
        fields: dict[str, Any] = {
            "model": request.model_name,
            "max_tokens": request.max_output_tokens,
            "messages": with_images([*to_anthropic_messages(messages)], request, "anthropic"),
        }
        if system:
            fields["system"] = system
        if tools := collect_tools(request.messages):
            fields["tools"] = [
                {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]}
                for tool in tools
            ]
        elif request.schema is not None and "json_schema" not in request.without:  # never beside tools
            output_format = {"type": "json_schema", "schema": transform_schema(to_object_root(request.schema))}
            fields["output_config"] = {"format": output_format}
        return mark_cached_prefix(fields, self._cache) if self._cache else fields

    def _extra_fields(self, request: Request) -> dict[str, Any]:
        # The SDK no longer has an argument for the temperature; the server rejects it for models without one.
        if request.temperature is None or "temperature" in request.without:
            return super()._extra_fields(request)
        return {"temperature": request.temperature, **super()._extra_fields(request)}

    def _droppable_parts(self, request: Request) -> list[str]:
        extra_fields, sent = super()._extra_fields(request), self.request_body(request)
        fields_by_part = {"json_schema": "output_config", "tools": "tools", "temperature": "temperature"}
        return [part for part, field in fields_by_part.items() if field in sent and field not in extra_fields]


_FINISHES: dict[str, Finish] = {"max_tokens": "length", "model_context_window_exceeded": "length", "refusal": "refusal"}


Json = dict[str, Any]

MIN_CACHED_TOKENS = 1024
"""The shortest prompt that any model of this API caches; some need 2,048 or 4,096 and ignore a mark below."""


def mark_cached_prefix(fields: Json, cache: str) -> Json:
    """Return the fields of a request with a cache mark on instructions and tools, the constant prefix of all turns.

    With "auto", only a prefix large enough for the API's cache is marked: the API ignores a mark on a smaller prefix,
    and a mark on a large prefix saves tokens as soon as the agent sends another request within five minutes. Tools
    precede the instructions in the cache, so a single mark at the end covers both.
    """
    system: Json = {"role": "system", "content": fields.get("system", "")}
    # Tools are counted only if the result depends on them.
    if cache == "auto" and all(
        estimate_prompt_tokens([message]) < MIN_CACHED_TOKENS
        for message in (system, {**system, "tools": fields.get("tools")})
    ):
        return fields
    mark = {"cache_control": {"type": "ephemeral", "ttl": "5m" if cache == "auto" else cache}}
    if "system" in fields:
        return {**fields, "system": [{"type": "text", "text": fields["system"], **mark}]}
    if "tools" in fields:
        return {**fields, "tools": [*fields["tools"][:-1], {**fields["tools"][-1], **mark}]}
    return fields


def to_anthropic_messages(messages: Sequence[Json]) -> Iterator[Json]:
    """Yield messages in the API's form, with consecutive tool results merged into one message."""
    for run in group_tool_results(messages):
        first = run[0]
        if first["role"] == "tool":
            yield {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": message["call"], "content": message["content"]}
                    | ({} if message.get("success", True) else {"is_error": True})
                    for message in run
                ],
            }
        elif kept_blocks := get_provider_state(first, ANTHROPIC):
            yield {"role": "assistant", "content": kept_blocks}
        elif calls := first.get("calls"):
            text = [{"type": "text", "text": first["content"]}] if first["content"].strip() else []
            yield {"role": "assistant", "content": [*text, *map(_tool_use_block, calls)]}
        else:
            yield {"role": first["role"], "content": first["content"]}


def _tool_use_block(call: Json) -> Json:
    return {"type": "tool_use", "id": call["id"], "name": call["tool"], "input": arguments_object(call)}


@dataclass(frozen=True)
class _ContentBlock:
    type: str
    text: str = ""
    id: Any = None
    name: Any = None
    input: Any = None
    thinking: str = ""
    signature: Any = None
    data: Any = None

    def to_request_blocks(self, call: Json | None) -> list[Json]:
        """Return the block as sent in the next request of the turn. `call` is the call in this block."""
        if call is not None:
            return [_tool_use_block(call)]
        if self.type == "text" and self.text.strip():  # an empty one would be refused
            return [{"type": "text", "text": self.text}]
        if self.type == "thinking":
            return [{"type": "thinking", "thinking": self.thinking, "signature": self.signature}]
        return [{"type": self.type, "data": self.data}] if self.type == "redacted_thinking" else []


@dataclass(frozen=True)
class AnthropicMessage:
    """Answer of the API, limited to the fields in use."""

    content: list[_ContentBlock]
    stop_reason: Any = None
    usage: Any = None  # an answer is paid for, whatever is odd about these
    model: Any = None
    id: Any = None

    def to_reply(self, request_id: str | None = None, model_name: str = "") -> Reply:
        """Return the answer as a reply with its usage."""
        fresh = usage_at_path(self.usage, "input_tokens")
        # The API counts tokens read from or written to the cache separately.
        apart = ("cache_read_input_tokens", "cache_creation_input_tokens")
        total = None if fresh is None else fresh + sum(usage_at_path(self.usage, key) or 0 for key in apart)
        return Reply(
            text=unwrap_reply("".join(block.text for block in self.content if block.type == "text")),
            input_tokens=total,
            output_tokens=usage_at_path(self.usage, "output_tokens"),
            cached_tokens=usage_at_path(self.usage, "cache_read_input_tokens"),
            written_tokens=usage_at_path(self.usage, "cache_creation_input_tokens"),
            finish=_FINISHES.get(str(self.stop_reason), "stop"),
            model=str(self.model or model_name),
            request_id=str(request_id or self.id or ""),
            **self._native_fields(),
        )

    def _native_fields(self) -> Json:
        """Return the fields of a `Reply` for tool calls and thinking.

        Thinking blocks are signed and must be sent back unchanged with the results of the calls.
        """
        uses = [block for block in self.content if block.type == "tool_use" and isinstance(block.name, str)]
        calls = make_calls((block.id, block.name, block.input) for block in uses)
        by_block = {id(block): call for block, call in zip(uses, calls, strict=True)}
        kept_blocks = [
            block_json for block in self.content for block_json in block.to_request_blocks(by_block.get(id(block)))
        ]
        thoughts = [block.thinking for block in self.content if block.type == "thinking" and block.thinking]
        return {"calls": calls, "thinking": "\n\n".join(thoughts), "kept": {ANTHROPIC: kept_blocks} if calls else None}
