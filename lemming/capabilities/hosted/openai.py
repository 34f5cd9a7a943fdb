"""OpenAI's two APIs, chat completions and responses, and servers that speak the first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from lemming.capabilities.hosted.counting import (
    COUNTED_RESPONSES,
    DEADLINE_S,
    count_chat,
    count_responses,
    count_texts,
    pick,
)
from lemming.capabilities.hosted.openai_wire import (
    Completion,
    JsonMode,
    Response,
    chat_fields,
    parts_of,
    responses_fields,
    stepped_down,
)
from lemming.capabilities.hosted.rate_headers import with_rest
from lemming.capabilities.hosted.schemas import unwrap_reply
from lemming.capabilities.hosted.sdk import SdkBackend, whole_of
from lemming.capabilities.hosted.servers import ModelServer, server_at, without_call
from lemming.capabilities.hosted.streams import ChatStream, ResponseStream, Stream
from lemming.kernel.base.errors import Unavailable
from lemming.kernel.llm.streaming import Hear
from lemming.kernel.providers import Reply, Request

if TYPE_CHECKING:
    import httpx2
    from openai import AsyncOpenAI

_OWN = ("OPENAI_API_KEY", "openai.com")


class OpenAIProvider(SdkBackend["AsyncOpenAI"]):
    """Asks OpenAI, or with `base_url` any server with the same API (llama.cpp, vLLM, a proxy).

    `json` says how the server is asked for JSON: "schema" (structured output), "object" (JSON mode) or
    "text" (only in the prompt); null: as the table of servers says for that address. One that refuses is
    asked the next way. A server at `base_url` gets no key
    unless `api_key_env` names one. `extra` holds further fields of the request; null takes a field out.
    `batches` says whether the server has the batch API; null: OpenAI itself has, one at `base_url` has not.
    """

    name = "openai"
    without_schema = 'options.json to "object" or "text"'
    takes_extra = True
    takes_schema = True
    takes_tools = True
    prefers_tools = True
    takes_images = True

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
        base_url = without_call(base_url) if base_url else base_url
        super().__init__(base_url=base_url, api_key_env=api_key_env, own=_OWN, extra=extra, batches=batches)
        self.api = api
        self.set_server(server_at(base_url), json)

    def set_server(self, server: ModelServer, json: JsonMode | None) -> None:
        """Follow the table of servers, and the line where it says how JSON is asked for."""
        self._server, self._json = server, json or server.json
        self.max_concurrent = server.calls_at(self._base_url)
        self.context_tokens = server.context_tokens
        self.takes_schema, self.prefers_tools = self._json == "schema", server.prefers_tools
        self.is_local = server.is_local

    def _client_with(self, http_client: httpx2.AsyncClient, key: str) -> AsyncOpenAI:
        from openai import AsyncOpenAI

        # Without the SDK's own deadlines and retries, which are ours.
        return AsyncOpenAI(
            api_key=key, base_url=self._base_url, timeout=None, max_retries=0, http_client=http_client
        )

    async def _ask(self, client: AsyncOpenAI, request: Request) -> Reply:
        path = "/chat/completions" if self.api == "chat" else "/responses"
        response = await self._post(client, path, request)
        reply = self.reply(response.content, response.headers.get("x-request-id"), request.model_name)
        return with_rest(reply, response.headers)

    async def _ask_heard(self, client: AsyncOpenAI, request: Request, hear: Hear) -> Reply:
        body = {**self.body(request), "stream": True}
        create: Any
        if self.api == "chat":
            stream: Stream = ChatStream(hear)
            create = partial(client.chat.completions.with_streaming_response.create, messages=[], model="")
            body["stream_options"] = {"include_usage": True}
        else:
            stream, create = ResponseStream(hear), client.responses.with_streaming_response.create
        with self.as_ours(request.model_name):
            async with create(stream=True, extra_body=body) as response:
                whole = await whole_of(response, stream)
        reply = self.reply(whole, response.headers.get("x-request-id"), request.model_name)
        return with_rest(reply, response.headers)

    def _fields(self, request: Request) -> dict[str, Any]:
        fields = chat_fields if self.api == "chat" else responses_fields
        return fields(request, stepped_down(self._json, request.without), self._server)

    def _parts(self, request: Request) -> list[str]:
        fields = self._fields(request)
        return [name for name in parts_of(fields) if name not in self._further(request)]

    def reply(self, body: bytes, request_id: str | None, model_name: str) -> Reply:
        """Return what an answer of the server's says; raise a `ProviderError` for what is none."""
        kind: type[Completion | Response] = Completion if self.api == "chat" else Response
        answer = self.read_answer(model_name, kind, body)
        if isinstance(answer, Reply):
            return answer
        if answer.failed:
            raise Unavailable("the server gave up on the answer", where=f"openai {model_name}")
        reply = answer.reply(request_id)
        text = unwrap_reply(reply.text) if self._server.root == "object" else reply.text
        return reply._replace(text=text, model=reply.model or model_name)

    def count_tokens(self, request: Request) -> int | None:
        """Return the input tokens of a request as its server counts them; None where it does not.

        OpenAI itself counts for its responses API only, which renders a conversation as the other does.
        """
        request = self.worded(request)
        if self.is_own or self.api == "responses":
            fields = responses_fields(request, stepped_down(self._json, request.without), self._server)
            body = pick({**fields, **self._further(request)}, COUNTED_RESPONSES)
            return self.run(
                lambda client: count_responses(self.poster(client, request.model_name), body), DEADLINE_S
            )
        body, root = self.body(request), self._tokenizer_root
        return self.run(
            lambda client: count_chat(self.poster(client, request.model_name), root, body), DEADLINE_S
        )

    def count_texts(self, model_name: str, texts: Sequence[str]) -> list[int] | None:
        """Return the tokens of each text, where the server gives its tokenizer."""
        if not (root := self._tokenizer_root):
            return None
        return self.run(
            lambda client: count_texts(self.poster(client, model_name), root, model_name, texts), DEADLINE_S
        )

    @property
    def _tokenizer_root(self) -> str:
        """The address below which a server of one's own gives its tokenizer; empty for all others."""
        if self.is_own or self._needs_key:
            return ""
        return self._address.rstrip("/").removesuffix("/v1")

    def _sdk(self) -> Any:
        import openai

        return openai
