"""OpenAI's two APIs, and every server that speaks the first: chat completions, and responses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from lemming.backends.http import HttpBackend, split_system, with_extra
from lemming.errors import TimedOut, Unavailable
from lemming.providers import Finish, Reply, Request

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_KEY_ENV = "OPENAI_API_KEY"


class OpenAIProvider(HttpBackend["AsyncOpenAI"]):
    """Asks OpenAI, or with `base_url` any server with the same API (llama.cpp, vLLM, a proxy).

    `json` says how the server is asked for JSON: "schema" (structured output), "object" (JSON mode) or
    "text" (only in the prompt). `extra` holds further fields of the request; null takes a field out.
    """

    name = "openai"
    takes_schema = True

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key_env: str | None = None,
        api: Literal["chat", "responses"] = "chat",
        json: Literal["schema", "object", "text"] = "schema",
        extra: dict[str, Any] | None = None,
    ) -> None:
        needs_key = base_url is None or api_key_env is not None
        super().__init__(base_url=base_url, key_env=api_key_env or _KEY_ENV, needs_key=needs_key)
        self.takes_schema = json == "schema"
        self._base_url, self._api, self._json, self._extra = base_url, api, json, extra or {}

    def _connect(self, key: str) -> AsyncOpenAI:
        from openai import AsyncOpenAI

        return AsyncOpenAI(api_key=key, base_url=self._base_url, timeout=None, max_retries=0)

    async def _ask(self, client: AsyncOpenAI, request: Request) -> Reply:
        import openai

        ask = self._chat if self._api == "chat" else self._responses
        try:
            return await ask(client, request)
        except openai.APIStatusError as error:
            raise self._error(request, error.status_code, error.body, error.response.headers) from error
        except openai.APITimeoutError as error:
            raise TimedOut("the connection timed out", where=self.name) from error
        except openai.APIConnectionError as error:
            raise self._unreachable(request, error.__cause__ or error) from error

    async def _chat(self, client: AsyncOpenAI, request: Request) -> Reply:
        fields: dict[str, Any] = {
            "model": request.model_name,
            "messages": request.messages,
            "max_completion_tokens": request.max_output_tokens,
            "seed": request.seed,
        }
        if request.temperature is not None:
            fields["temperature"] = request.temperature
        if request.schema is not None and self._json == "schema":
            wanted = {"name": "turn", "strict": True, "schema": request.schema}
            fields["response_format"] = {"type": "json_schema", "json_schema": wanted}
        elif request.schema is not None and self._json == "object":
            fields["response_format"] = {"type": "json_object"}
        create: Any = client.chat.completions.with_raw_response.create
        response = await create(**with_extra(fields, self._extra))
        answer = self._read(request, _Completion, response.content)
        choice, usage = answer.choices[0], answer.usage or _ChatUsage()
        details = usage.prompt_tokens_details or _Cached()
        return Reply(
            text=choice.message.content or "",
            input_tokens=usage.prompt_tokens,
            output_tokens=usage.completion_tokens,
            cached_tokens=details.cached_tokens,
            finish="refusal" if choice.message.refusal else _FINISHES.get(choice.finish_reason or "", "stop"),
            model=answer.model or request.model_name,
            request_id=response.request_id or answer.id or "",
        )

    async def _responses(self, client: AsyncOpenAI, request: Request) -> Reply:
        system, messages = split_system(request.messages)
        fields: dict[str, Any] = {
            "model": request.model_name,
            "input": messages,
            "max_output_tokens": request.max_output_tokens,
            "store": False,
        }
        if system:
            fields["instructions"] = system
        if request.temperature is not None:
            fields["temperature"] = request.temperature
        if request.schema is not None and self._json == "schema":
            wanted = {"type": "json_schema", "name": "turn", "strict": True, "schema": request.schema}
            fields["text"] = {"format": wanted}
        elif request.schema is not None and self._json == "object":
            fields["text"] = {"format": {"type": "json_object"}}
        create: Any = client.responses.with_raw_response.create
        response = await create(**with_extra(fields, self._extra))
        answer = self._read(request, _Response, response.content)
        if answer.status == "failed":
            raise Unavailable("the server gave up on the answer", where=f"openai {request.model_name}")
        usage = answer.usage or _ResponseUsage()
        details = usage.input_tokens_details or _Cached()
        return Reply(
            text="".join(part.text for part in answer.parts("output_text")),
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=details.cached_tokens,
            finish=answer.finish(),
            model=answer.model or request.model_name,
            request_id=response.request_id or answer.id or "",
        )


# --- the parts of an answer that are read -------------------------------------------------------

_FINISHES: dict[str, Finish] = {"length": "length", "content_filter": "refusal"}


@dataclass(frozen=True)
class _Cached:
    cached_tokens: int | None = None


@dataclass(frozen=True)
class _ChatUsage:
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Cached | None = None


@dataclass(frozen=True)
class _ChatMessage:
    content: str | None = None
    refusal: str | None = None


@dataclass(frozen=True)
class _Choice:
    message: _ChatMessage
    finish_reason: str | None = None


@dataclass(frozen=True)
class _Completion:
    choices: Annotated[list[_Choice], Field(min_length=1)]
    usage: _ChatUsage | None = None
    model: str | None = None
    id: str | None = None


@dataclass(frozen=True)
class _ResponseUsage:
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _Cached | None = None


@dataclass(frozen=True)
class _Part:
    type: str
    text: str = ""


@dataclass(frozen=True)
class _Item:
    """One item of a response; reasoning and other kinds have no content to read."""

    type: str
    content: list[_Part] | None = None


@dataclass(frozen=True)
class _Incomplete:
    reason: str | None = None


@dataclass(frozen=True)
class _Response:
    output: list[_Item]
    status: str | None = None
    incomplete_details: _Incomplete | None = None
    usage: _ResponseUsage | None = None
    model: str | None = None
    id: str | None = None

    def parts(self, kind: str) -> list[_Part]:
        """Return the parts of the messages that are of one kind."""
        messages = [item for item in self.output if item.type == "message"]
        return [part for item in messages for part in item.content or [] if part.type == kind]

    def finish(self) -> Finish:
        """Return how the answer ended."""
        reason = self.incomplete_details.reason if self.incomplete_details else ""
        if self.parts("refusal") or reason == "content_filter":
            return "refusal"
        return "length" if self.status == "incomplete" else "stop"
