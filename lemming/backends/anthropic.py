"""Anthropic's Messages API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lemming.backends.http import HttpBackend, split_system, with_extra
from lemming.errors import TimedOut
from lemming.providers import Finish, Reply, Request

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

_KEY_ENV = "ANTHROPIC_API_KEY"


class AnthropicProvider(HttpBackend["AsyncAnthropic"]):
    """Asks Anthropic, or with `base_url` any server with the same API.

    `extra` holds further fields of the request; null takes a field out.
    """

    name = "anthropic"
    takes_schema = True

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key_env: str | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        needs_key = base_url is None or api_key_env is not None
        super().__init__(base_url=base_url, key_env=api_key_env or _KEY_ENV, needs_key=needs_key)
        self._base_url, self._extra = base_url, extra or {}

    def _connect(self, key: str) -> AsyncAnthropic:
        from anthropic import AsyncAnthropic

        return AsyncAnthropic(
            api_key=key, base_url=self._base_url, timeout=None, max_retries=0, open_telemetry=False
        )

    async def _ask(self, client: AsyncAnthropic, request: Request) -> Reply:
        import anthropic

        create: Any = client.messages.with_raw_response.create
        try:
            response = await create(**with_extra(self._fields(request), self._further(request)))
            body = await response.read()
        except anthropic.APIStatusError as error:
            raise self._error(request, error.status_code, error.body, error.response.headers) from error
        except anthropic.APITimeoutError as error:
            raise TimedOut("the connection timed out", where=self.name) from error
        except anthropic.APIConnectionError as error:
            raise self._unreachable(request, error.__cause__ or error) from error
        answer = self._read(request, _Message, body)
        usage = answer.usage or _Usage()
        return Reply(
            text="".join(block.text for block in answer.content if block.type == "text"),
            input_tokens=usage.all_input_tokens(),
            output_tokens=usage.output_tokens,
            cached_tokens=usage.cache_read_input_tokens,
            finish=_FINISHES.get(answer.stop_reason or "", "stop"),
            model=answer.model or request.model_name,
            request_id=response.request_id or answer.id or "",
        )

    def _fields(self, request: Request) -> dict[str, Any]:
        from anthropic import transform_schema

        system, messages = split_system(request.messages)
        fields: dict[str, Any] = {
            "model": request.model_name,
            "max_tokens": request.max_output_tokens,
            "messages": messages,
        }
        if system:
            fields["system"] = system
        if request.schema is not None:
            wanted = {"type": "json_schema", "schema": transform_schema(request.schema)}
            fields["output_config"] = {"format": wanted}
        return fields

    def _further(self, request: Request) -> dict[str, Any]:
        # The SDK has no argument for a temperature any more; whether the model takes one, the server says.
        temperature = {} if request.temperature is None else {"temperature": request.temperature}
        return {**temperature, **self._extra}


# --- the parts of an answer that are read -------------------------------------------------------

_FINISHES: dict[str, Finish] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}


@dataclass(frozen=True)
class _Usage:
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None

    def all_input_tokens(self) -> int | None:
        """Return the whole prompt's tokens: this API counts those read from a cache apart."""
        if self.input_tokens is None:
            return None
        return (
            self.input_tokens + (self.cache_read_input_tokens or 0) + (self.cache_creation_input_tokens or 0)
        )


@dataclass(frozen=True)
class _Block:
    type: str
    text: str = ""


@dataclass(frozen=True)
class _Message:
    content: list[_Block]
    stop_reason: str | None = None
    usage: _Usage | None = None
    model: str | None = None
    id: str | None = None
