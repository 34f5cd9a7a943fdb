"""Provider for a local Ollama server.

The SDK rejects an answer for an irrelevant odd number, and drops the headers of an error. Responses are
checked and normalised before the SDK reads them.
"""

from __future__ import annotations

import json
import os
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from lemming.capabilities.hosted_models.answer_streams import OllamaLineStream
from lemming.capabilities.hosted_models.bounded_response import client_settings, tee_stream
from lemming.capabilities.hosted_models.native_formats import (
    arguments_object,
    chat_calls,
    collect_tools,
    function_tools,
    make_calls,
    with_images,
)
from lemming.capabilities.hosted_models.provider_http import HttpBackend, error_body
from lemming.ext import ConfigError
from lemming.kernel.base.errors import ProviderError, TimedOut
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.base.redaction.secrets import register_secret_variables, strip_userinfo
from lemming.kernel.llm.call_cost import usage_at_path
from lemming.kernel.providers import Finish, Message, Reply, Request
from lemming.libraries.compatible_servers import OLLAMA
from lemming.libraries.streaming import DeltaCallback

if TYPE_CHECKING:
    from httpx import Response
    from ollama import AsyncClient, ChatResponse

_PORT = 11434
_SDK_KEYWORDS = ("type", "items", "description", "enum", "title")
_FINISHES: dict[str, Finish] = {"length": "length", "failed": "failed"}
DEFAULT_CONTEXT_TOKENS = 4096
"""Ollama's default context length, used without `num_ctx`."""

_current_stream: ContextVar[OllamaLineStream | None] = ContextVar("_hearing", default=None)


@dataclass(frozen=True)
class _OllamaMessage:
    content: str | None = None
    thinking: Any = None
    tool_calls: Any = None

    def normalize(self) -> dict[str, Any]:
        """Return the message in the form of the SDK, with arguments as objects."""
        calls = [
            {"function": {"name": call["tool"], "arguments": arguments_object(call)}}
            for call in chat_calls(self.tool_calls)
        ]
        thinking = {"thinking": self.thinking} if isinstance(self.thinking, str) else {}
        return {"content": self.content, **thinking, **({"tool_calls": calls} if calls else {})}


@dataclass(frozen=True)
class _OllamaAnswer:
    """Answer of Ollama, limited to the fields in use."""

    message: _OllamaMessage
    done_reason: Any = None
    model: Any = None
    prompt_eval_count: Any = None  # an answer is there, whatever is odd about its usage
    eval_count: Any = None


class OllamaProvider(HttpBackend["AsyncClient"]):
    """Provider for Ollama at `host`, at `OLLAMA_HOST`, or at http://127.0.0.1:11434.

    `num_ctx`: context in tokens (Ollama silently truncates longer prompts). `keep_alive`: lifetime of
    the model in memory, such as "10m". `extra`: additional model options, such as `top_k`.
    """

    name = "ollama"
    max_concurrent = OLLAMA.max_concurrent
    takes_extra = True
    takes_schema = True
    takes_tools = True
    takes_images = True
    prefers_tools, is_local = OLLAMA.prefers_tools, OLLAMA.is_local

    def __init__(
        self,
        *,
        host: str | None = None,
        keep_alive: str | float | None = None,
        num_ctx: int | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(key_env="OLLAMA_API_KEY")
        if host:
            resolve_address(host)
            register_secret_variables({"host": host}, "config/models.json")
        self._host, self._keep_alive = host, keep_alive
        self.context_tokens = num_ctx or DEFAULT_CONTEXT_TOKENS
        self._options = {**({} if num_ctx is None else {"num_ctx": num_ctx}), **(extra or {})}

    def _create_client(self, key: str) -> AsyncClient:
        address = resolve_address(self._host or os.environ.get("OLLAMA_HOST") or "")
        try:
            from ollama import AsyncClient
        except ValueError as error:  # the SDK reads the variable when it is imported, whoever is asked
            raise ConfigError("expected the address of a server", where="OLLAMA_HOST") from error

        settings = client_settings()
        settings["event_hooks"]["response"].append(self._on_response)
        if key != "none":
            settings["headers"]["authorization"] = f"Bearer {key}"
        parts = urlsplit(address)
        if parts.username or parts.password:  # the SDK leaves them out of the address
            settings["auth"] = (unquote(parts.username or ""), unquote(parts.password or ""))
        return AsyncClient(strip_userinfo(address), **settings)

    async def _send_request(
        self, client: AsyncClient, request: Request, on_delta: DeltaCallback | None = None
    ) -> Reply:
        if on_delta is None:
            return self._to_reply(await self._chat(client, request), request)
        token = _current_stream.set(OllamaLineStream(on_delta))
        try:
            pieces: Any = await self._chat(client, request, stream=True)
            (answer,) = [piece async for piece in pieces]  # assembled by `_on_response`
        finally:
            _current_stream.reset(token)
        return self._to_reply(answer, request)

    def _to_reply(self, answer: ChatResponse, request: Request) -> Reply:
        return Reply(
            text=answer.message.content or "",
            input_tokens=answer.prompt_eval_count,
            output_tokens=answer.eval_count,
            finish=_FINISHES.get(answer.done_reason or "", "stop"),
            model=answer.model or request.model_name,
            thinking=answer.message.thinking or "",
            calls=make_calls(
                (None, call.function.name, dict(call.function.arguments)) for call in answer.message.tool_calls or ()
            ),
        )

    def to_body(self, request: Request) -> dict[str, Any]:
        """Return a request in the form sent to the server."""
        return {key: value for key, value in self._body(self.inline_tools(request)).items() if value is not None}

    def _body(self, request: Request) -> dict[str, Any]:
        options = {"num_predict": request.max_output_tokens, "seed": request.seed}
        temperature = OLLAMA.temperature if request.temperature is None else request.temperature
        return {
            "model": request.model_name,
            "messages": with_images([*map(_to_ollama_message, request.messages)], request, "ollama"),
            "tools": [_to_ollama_tool(tool) for tool in function_tools(request.messages)] or None,
            "format": _response_format(request),
            "options": {**options, "temperature": temperature, **self._options, **(request.extra or {})},
            "keep_alive": self._keep_alive,
        }

    async def _chat(self, client: AsyncClient, request: Request, *, stream: bool = False) -> ChatResponse:
        import httpx

        try:
            chat: Any = client.chat
            answer: ChatResponse = await chat(**self._body(request), stream=stream)
            return answer
        except httpx.TimeoutException as error:
            raise TimedOut("the connection timed out", where=self.name) from error
        except httpx.HTTPError as error:
            cause = error.__cause__ or error
            raise self._unreachable_error(request.model_name, cause, error.request.url) from error
        except ConnectionError as error:  # the SDK's own error, without the address
            context: Any = error.__context__
            cause = context.__cause__ or context
            raise self._unreachable_error(request.model_name, cause, context.request.url) from error

    def _droppable_parts(self, request: Request) -> list[str]:
        response_format = _response_format(request)
        tools = ["tools"] if collect_tools(request.messages) else []
        if response_format is None:
            return tools
        return [*tools, "json_object" if response_format == "json" else "json_schema"]

    async def _on_response(self, response: Response) -> None:
        """Raise for an error response, otherwise normalise the body before the SDK reads the answer. An event hook."""
        model_name = json.loads(response.request.content)["model"]
        if response.status_code != 200:
            await response.aread()
            raise self._status_error(model_name, response.status_code, error_body(response), response.headers)
        stream: Any = response.stream
        if lines := _current_stream.get():
            response.stream = tee_stream(
                stream, lines.feed, lambda: self._normalize_body(model_name, lines.to_response())
            )
        else:
            body = bytearray()
            response.stream = tee_stream(stream, body.extend, lambda: self._normalize_body(model_name, bytes(body)))

    def _normalize_body(self, model_name: str, body: bytes) -> bytes:
        """Return an answer reduced to the fields in use, without malformed counts."""
        answer = self.parse_answer(model_name, _OllamaAnswer, body)
        if isinstance(answer, Reply):
            message = _OllamaMessage(content=answer.text, thinking=answer.thinking)
            answer = _OllamaAnswer(message, answer.finish, model_name, answer.input_tokens, answer.output_tokens)
        counts = vars(answer)
        normalized = {
            "model": str(answer.model or model_name),
            "message": {"role": "assistant", **answer.message.normalize()},
            "done_reason": _FINISHES.get(str(answer.done_reason), "stop"),
            "prompt_eval_count": usage_at_path(counts, "prompt_eval_count"),
            "eval_count": usage_at_path(counts, "eval_count"),
        }
        return json.dumps(normalized).encode()

    def _unreachable_error(self, model_name: str, cause: BaseException, url: Any) -> ProviderError:
        error = super()._unreachable_error(model_name, cause, url)
        error.hint = error.hint or "start `ollama serve` there"
        return error

    def _hint_for_unknown(self, model_name: str) -> str:
        return f"ollama pull {model_name}"


def resolve_address(host: str) -> str:
    """Return the address for a `host` option or `OLLAMA_HOST`.

    Raises: ConfigError for an invalid address.

    >>> resolve_address(""), resolve_address("box"), resolve_address("https://me:pw@box/path/")
    ('http://127.0.0.1:11434', 'http://box:11434', 'https://me:pw@box:443/path')
    """
    scheme, mark, remainder = host.rpartition("://")
    try:
        parts = urlsplit(f"{scheme or 'http'}://{remainder}")
        port = parts.port or ({"http": 80, "https": 443}[parts.scheme] if mark else _PORT)
    except (ValueError, KeyError) as error:
        safe_host = strip_userinfo(host)
        raise ConfigError(
            f"provider ollama: expected the address of a server, got {safe_host!r}", where="config/models.json"
        ) from error
    name = parts.hostname or "127.0.0.1"
    userinfo, at, _ = parts.netloc.rpartition("@")
    bracketed = f"[{name}]" if ":" in name else name
    return f"{parts.scheme}://{userinfo}{at}{bracketed}:{port}{parts.path.rstrip('/')}"


def _response_format(request: Request) -> Any:
    """Return the format of the answer: a schema, "json" or None. A format would prevent calls, so tools get none."""
    if request.schema is None or "json_object" in request.without or collect_tools(request.messages):
        return None
    return "json" if "json_schema" in request.without else request.schema


def _to_ollama_tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool with the keywords dropped by the SDK added to the descriptions of its arguments."""
    function = tool["function"]
    properties = dict(function["parameters"].get("properties", {}))
    for name, schema in properties.items():
        dropped = (
            {key: value for key, value in schema.items() if key not in _SDK_KEYWORDS}
            if isinstance(schema, dict)
            else {}
        )
        if dropped:
            description = f"{schema.get('description', '')} JSON Schema: {to_line(dropped)}".strip()
            properties[name] = {**schema, "description": description}
    return {**tool, "function": {**function, "parameters": {**function["parameters"], "properties": properties}}}


def _to_ollama_message(message: Message) -> dict[str, Any]:
    """Return a message in Ollama's form: calls have no ids."""
    plain = {"role": message["role"], "content": message["content"]}
    if message["role"] == "tool":
        return {**plain, "tool_name": message["tool"]}
    calls = [
        {"function": {"name": call["tool"], "arguments": arguments_object(call)}} for call in message.get("calls", ())
    ]
    return {**plain, "tool_calls": calls} if calls else plain
