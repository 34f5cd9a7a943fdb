"""Provider for OpenAI's two APIs, chat completions and responses, and for servers compatible with the first."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from lemming.capabilities.hosted_models.answer_streams import ChatStream, ResponsesStream
from lemming.capabilities.hosted_models.native_formats import unwrap_reply
from lemming.capabilities.hosted_models.openai_wire import (
    ChatCompletion,
    JsonMode,
    OpenAIResponse,
    chat_fields,
    choose_json_mode,
    iter_droppable_parts,
    responses_fields,
)
from lemming.capabilities.hosted_models.sdk_common import SdkBackend
from lemming.ext import ConfigError
from lemming.kernel.base.errors import Unavailable
from lemming.kernel.providers import Reply, Request
from lemming.libraries.compatible_servers import SERVERS, ModelServer, find_server, strip_endpoint
from lemming.libraries.streaming import DeltaCallback

if TYPE_CHECKING:
    import httpx2
    from openai import AsyncOpenAI

_OFFICIAL_API = ("OPENAI_API_KEY", "openai.com")


class OpenAIProvider(SdkBackend["AsyncOpenAI"]):
    """Provider for OpenAI, or with `base_url` for any compatible server (llama.cpp, vLLM, a proxy).

    `json`: the way to request JSON from the server: "schema" (structured output), "object" (JSON mode) or
    "text" (prompt only). With null, the table of servers decides by address. A rejected way falls back to the
    next. A server at `base_url` gets no key unless `api_key_env` names one. `extra` holds additional request
    fields; null removes a field. `batches`: the server has the batch API. With null, OpenAI itself has the
    API, and a server at `base_url` has not.
    """

    name = "openai"
    without_schema = 'options.json to "object" or "text"'
    takes_extra = True
    takes_schema = True
    takes_tools = True
    prefers_tools = True
    takes_images = True
    request_id_header = "x-request-id"

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key_env: str | None = None,
        api: Literal["chat", "responses"] = "chat",
        json: JsonMode | None = None,
        extra: dict[str, Any] | None = None,
        batches: bool | None = None,
    ) -> None:
        base_url = strip_endpoint(base_url) if base_url else base_url
        super().__init__(
            base_url=base_url, api_key_env=api_key_env, official_api=_OFFICIAL_API, extra=extra, batches=batches
        )
        self.api, self._path = api, "/chat/completions" if api == "chat" else "/responses"
        self.set_server(find_server(base_url), json)

    def set_server(self, server: ModelServer, json: JsonMode | None) -> None:
        """Apply a server's profile, and the JSON mode of the model entry if set."""
        self._server, self._json = server, json or server.json
        self.max_concurrent = server.max_calls(self._base_url)
        self.context_tokens = server.context_tokens
        self.takes_schema, self.prefers_tools = self._json == "schema", server.prefers_tools
        self.is_local = server.is_local

    def _make_client(self, http_client: httpx2.AsyncClient, key: str) -> AsyncOpenAI:
        from openai import AsyncOpenAI

        # Without the SDK's own deadlines and retries, which are ours.
        return AsyncOpenAI(api_key=key, base_url=self._base_url, timeout=None, max_retries=0, http_client=http_client)

    def _make_stream(self, on_delta: DeltaCallback) -> ChatStream | ResponsesStream:
        return ChatStream(on_delta) if self.api == "chat" else ResponsesStream(on_delta)

    def _stream_fields(self) -> dict[str, Any]:
        usage = {"stream_options": {"include_usage": True}} if self.api == "chat" else {}
        return {**super()._stream_fields(), **usage}

    def _request_fields(self, request: Request) -> dict[str, Any]:
        fields = chat_fields if self.api == "chat" else responses_fields
        return fields(request, choose_json_mode(self._json, request.without), self._server)

    def _droppable_parts(self, request: Request) -> list[str]:
        fields = self._request_fields(request)
        return [name for name in iter_droppable_parts(fields) if name not in self._extra_fields(request)]

    def parse_reply(self, body: bytes, request_id: str | None, model_name: str) -> Reply:
        """Return the reply in the body of an answer. Raises: ProviderError for a failed or malformed answer."""
        kind: type[ChatCompletion | OpenAIResponse] = ChatCompletion if self.api == "chat" else OpenAIResponse
        answer = self.parse_answer(model_name, kind, body)
        if isinstance(answer, Reply):
            return answer
        if answer.has_failed:
            raise Unavailable("the server gave up on the answer", where=f"openai {model_name}")
        reply = answer.to_reply(request_id)
        text = unwrap_reply(reply.text) if self._server.root == "object" else reply.text
        return reply._replace(text=text, model=reply.model or model_name)

    def _sdk_module(self) -> Any:
        import openai

        return openai


class OpenAICompatibleProvider(OpenAIProvider):
    """Provider for a server with OpenAI's chat completions, at its default address or at `base_url`.

    The server's key is sent only to its own address. Another `base_url` gets no key unless `api_key_env` names one.
    """

    host: ClassVar[ModelServer]

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key_env: str | None = None,
        json: JsonMode | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        host = self.host
        if not (base_url or host.address):
            message = f"provider {self.name} requires options.base_url"
            raise ConfigError(message, hint=f'set "options": {{"base_url": "{host.example}"}}')
        address = host.get_url(base_url)
        super().__init__(base_url=address, api_key_env=host.key_variable(address, api_key_env) or None, extra=extra)
        self.set_server(host, json)


@cache
def _make_provider_class(name: str) -> type[OpenAICompatibleProvider]:
    return type(f"{name.title()}Provider", (OpenAICompatibleProvider,), {"name": name, "host": SERVERS[name]})


def __getattr__(name: str) -> type[OpenAICompatibleProvider]:
    if name in SERVERS:
        return _make_provider_class(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
