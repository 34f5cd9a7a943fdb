"""Anthropic's Messages API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from lemming.capabilities.hosted.anthropic_wire import (
    Message,
    mark_constant_half,
    wire_messages,
    wire_tool,
)
from lemming.capabilities.hosted.counting import DEADLINE_S, count_messages
from lemming.capabilities.hosted.http import split_system
from lemming.capabilities.hosted.native import tools_of, with_images
from lemming.capabilities.hosted.rate_headers import with_rest
from lemming.capabilities.hosted.schemas import to_object_root
from lemming.capabilities.hosted.sdk import SdkBackend, whole_of
from lemming.capabilities.hosted.streams import MessageStream
from lemming.kernel.llm.streaming import Hear
from lemming.kernel.providers import Reply, Request

if TYPE_CHECKING:
    import httpx2
    from anthropic import AsyncAnthropic

_OWN = ("ANTHROPIC_API_KEY", "anthropic.com")


class AnthropicProvider(SdkBackend["AsyncAnthropic"]):
    """Asks Anthropic, or with `base_url` any server with the same API.

    A server at `base_url` gets no key unless `api_key_env` names one. `cache`: for how long it keeps what all
    turns of an agent begin with; "auto": for five minutes where that is large; null: not at all.
    `extra` holds further fields of the request; null takes a field out. `batches` says whether the server
    has the batch API; null: Anthropic itself has, one at `base_url` has not.
    """

    name = "anthropic"
    without_schema = 'options.extra to {"output_config": null}'
    takes_extra = True
    takes_schema = True
    takes_tools = True
    prefers_tools = True
    takes_images = True
    context_tokens = 200_000

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
        super().__init__(base_url=base_url, api_key_env=api_key_env, own=_OWN, extra=extra, batches=batches)

    def _client_with(self, http_client: httpx2.AsyncClient, key: str) -> AsyncAnthropic:
        from anthropic import AsyncAnthropic

        return AsyncAnthropic(
            api_key=key,
            base_url=self._base_url,
            timeout=None,  # deadlines and retries are ours
            max_retries=0,
            open_telemetry=False,
            http_client=http_client,
        )

    async def _ask(self, client: AsyncAnthropic, request: Request) -> Reply:
        response = await self._post(client, "/v1/messages", request)
        reply = self._reply(response.content, response.headers.get("request-id"), request)
        return with_rest(reply, response.headers)

    async def _ask_heard(self, client: AsyncAnthropic, request: Request, hear: Hear) -> Reply:
        create: Any = client.messages.with_streaming_response.create
        with self.as_ours(request.model_name):
            async with create(**self._arguments(request), stream=True) as response:
                body = await whole_of(response, MessageStream(hear))
        return with_rest(self._reply(body, response.request_id, request), response.headers)

    def _reply(self, body: bytes, request_id: str | None, request: Request) -> Reply:
        answer = self.read_answer(request.model_name, Message, body)
        return answer if isinstance(answer, Reply) else answer.reply(request_id, request.model_name)

    def count_tokens(self, request: Request) -> int | None:
        """Return the input tokens of a request as its server counts them; None where it does not."""
        body = self.to_body(request)
        return self.run(
            lambda client: count_messages(self.poster(client, request.model_name), body), DEADLINE_S
        )

    def _sdk(self) -> Any:
        import anthropic

        return anthropic

    def _fields(self, request: Request) -> dict[str, Any]:
        from anthropic import transform_schema

        system, messages = split_system(request.messages)
        fields: dict[str, Any] = {
            "model": request.model_name,
            "max_tokens": request.max_output_tokens,
            "messages": with_images([*wire_messages(messages)], request, "anthropic"),
        }
        if system:
            fields["system"] = system
        if tools := tools_of(request.messages):
            fields["tools"] = [wire_tool(tool) for tool in tools]
        elif request.schema is not None and "json_schema" not in request.without:  # never beside tools
            wanted = {"type": "json_schema", "schema": transform_schema(to_object_root(request.schema))}
            fields["output_config"] = {"format": wanted}
        return mark_constant_half(fields, self._cache) if self._cache else fields

    def _further(self, request: Request) -> dict[str, Any]:
        # The SDK has no argument for a temperature any more; whether the model takes one, the server says.
        if request.temperature is None or "temperature" in request.without:
            return super()._further(request)
        return {"temperature": request.temperature, **super()._further(request)}

    def _parts(self, request: Request) -> list[str]:
        own, sent = super()._further(request), self.body(request)
        wanted = {"json_schema": "output_config", "tools": "tools", "temperature": "temperature"}
        return [part for part, field in wanted.items() if field in sent and field not in own]
