"""Provider for Anthropic's Messages API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from lemming.capabilities.hosted_models.answer_streams import MessageStream
from lemming.capabilities.hosted_models.anthropic_wire import (
    AnthropicMessage,
    mark_cached_prefix,
    to_anthropic_messages,
    to_anthropic_tool,
)
from lemming.capabilities.hosted_models.counting import DEADLINE_S, count_messages
from lemming.capabilities.hosted_models.native_formats import collect_tools, with_images
from lemming.capabilities.hosted_models.provider_http import split_system
from lemming.capabilities.hosted_models.rate_headers import with_limit_wait
from lemming.capabilities.hosted_models.schemas import to_object_root
from lemming.capabilities.hosted_models.sdk_common import SdkBackend, load_full_body
from lemming.kernel.llm.streaming import DeltaCallback
from lemming.kernel.providers import Reply, Request

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

    async def _send_request(self, client: AsyncAnthropic, request: Request) -> Reply:
        response = await self._post(client, "/v1/messages", request)
        reply = self._reply(response.content, response.headers.get("request-id"), request)
        return with_limit_wait(reply, response.headers)

    async def _stream_request(self, client: AsyncAnthropic, request: Request, on_delta: DeltaCallback) -> Reply:
        create: Any = client.messages.with_streaming_response.create
        with self.wrap_sdk_errors(request.model_name):
            async with create(**self._sdk_arguments(request), stream=True) as response:
                body = await load_full_body(response, MessageStream(on_delta))
        return with_limit_wait(self._reply(body, response.request_id, request), response.headers)

    def _reply(self, body: bytes, request_id: str | None, request: Request) -> Reply:
        answer = self.parse_answer(request.model_name, AnthropicMessage, body)
        return answer if isinstance(answer, Reply) else answer.to_reply(request_id, request.model_name)

    def count_tokens(self, request: Request) -> int | None:
        """Return the input tokens of a request as counted by the server, or None if unsupported."""
        body = self.to_body(request)
        return self.run(lambda client: count_messages(self.make_poster(client, request.model_name), body), DEADLINE_S)

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
            fields["tools"] = [to_anthropic_tool(tool) for tool in tools]
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
