"""A local Ollama server.

The SDK refuses an answer for an odd number beside the point, and forgets the headers of a refusal. So what
comes in is looked at before the SDK reads it.
"""

from __future__ import annotations

import json
import os
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from lemming.capabilities.hosted.bounded import client_settings, listened_to, rewritten
from lemming.capabilities.hosted.http import HttpBackend, error_body
from lemming.capabilities.hosted.native import (
    arguments_of,
    chat_calls,
    function_tools,
    made,
    tools_of,
    with_images,
)
from lemming.capabilities.hosted.servers import OLLAMA
from lemming.capabilities.hosted.streams import LinesOfAnswer
from lemming.kernel.base.errors import ConfigError, ProviderError, TimedOut
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.base.redaction.secrets import name_variables, without_userinfo
from lemming.kernel.llm.streaming import Hear
from lemming.kernel.llm.tokens import tokens_at
from lemming.kernel.providers import Finish, Message, Reply, Request

if TYPE_CHECKING:
    from httpx import Response
    from ollama import AsyncClient, ChatResponse

_PORT = 11434
_KEPT_BY_THE_SDK = ("type", "items", "description", "enum", "title")
_FINISHES: dict[str, Finish] = {"length": "length", "failed": "failed"}
USUAL_CONTEXT_TOKENS = 4096
"""What Ollama gives a model where nobody says `num_ctx`."""

_hearing: ContextVar[LinesOfAnswer | None] = ContextVar("_hearing", default=None)


@dataclass(frozen=True)
class _Message:
    content: str | None = None
    thinking: Any = None
    tool_calls: Any = None

    def right(self) -> dict[str, Any]:
        """Return the message as the SDK takes it, with arguments that are objects."""
        calls = [
            {"function": {"name": call["tool"], "arguments": arguments_of(call)}}
            for call in chat_calls(self.tool_calls)
        ]
        thinking = {"thinking": self.thinking} if isinstance(self.thinking, str) else {}
        return {"content": self.content, **thinking, **({"tool_calls": calls} if calls else {})}


@dataclass(frozen=True)
class _Answer:
    """The parts of an answer that are read."""

    message: _Message
    done_reason: Any = None
    model: Any = None
    prompt_eval_count: Any = None  # an answer is there, whatever is odd about its usage
    eval_count: Any = None


class OllamaProvider(HttpBackend["AsyncClient"]):
    """Asks Ollama at `host`, or where `OLLAMA_HOST` says, or at http://127.0.0.1:11434.

    `num_ctx` is the context in tokens (Ollama cuts longer prompts without a word), `keep_alive` how long
    the model stays in memory (such as "10m"), `extra` holds further model options (such as `top_k`).
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
            address_of(host)
            name_variables({"host": host}, "config/models.json")
        self._host, self._keep_alive = host, keep_alive
        self.context_tokens = num_ctx or USUAL_CONTEXT_TOKENS
        self._options = {**({} if num_ctx is None else {"num_ctx": num_ctx}), **(extra or {})}

    def _connect(self, key: str) -> AsyncClient:
        address = address_of(self._host or os.environ.get("OLLAMA_HOST") or "")
        try:
            from ollama import AsyncClient
        except ValueError as error:  # the SDK reads the variable when it is imported, whoever is asked
            raise ConfigError("no address of a server", where="OLLAMA_HOST") from error

        settings = client_settings()
        settings["event_hooks"]["response"].append(self._look_at)
        if key != "none":
            settings["headers"]["authorization"] = f"Bearer {key}"
        parts = urlsplit(address)
        if parts.username or parts.password:  # the SDK leaves them out of the address
            settings["auth"] = (unquote(parts.username or ""), unquote(parts.password or ""))
        return AsyncClient(without_userinfo(address), **settings)

    async def _ask(self, client: AsyncClient, request: Request) -> Reply:
        return self._reply(await self._chat(client, request), request)

    async def _ask_heard(self, client: AsyncClient, request: Request, hear: Hear) -> Reply:
        token = _hearing.set(LinesOfAnswer(hear))
        try:
            pieces: Any = await self._chat(client, request, stream=True)
            (answer,) = [piece async for piece in pieces]  # put together by `_look_at`
        finally:
            _hearing.reset(token)
        return self._reply(answer, request)

    def _reply(self, answer: ChatResponse, request: Request) -> Reply:
        return Reply(
            text=answer.message.content or "",
            input_tokens=answer.prompt_eval_count,
            output_tokens=answer.eval_count,
            finish=_FINISHES.get(answer.done_reason or "", "stop"),
            model=answer.model or request.model_name,
            thinking=answer.message.thinking or "",
            calls=made(
                (None, call.function.name, dict(call.function.arguments))
                for call in answer.message.tool_calls or ()
            ),
        )

    def to_body(self, request: Request) -> dict[str, Any]:
        """Return a request as its server is sent it."""
        return {key: value for key, value in self._body(self.worded(request)).items() if value is not None}

    def _body(self, request: Request) -> dict[str, Any]:
        options = {"num_predict": request.max_output_tokens, "seed": request.seed}
        temperature = OLLAMA.temperature if request.temperature is None else request.temperature
        return {
            "model": request.model_name,
            "messages": with_images([*map(_wire_message, request.messages)], request, "ollama"),
            "tools": [_wire_tool(tool) for tool in function_tools(request.messages)] or None,
            "format": _format(request),
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
            raise self._unreachable(request.model_name, cause, error.request.url) from error
        except ConnectionError as error:  # the SDK's own, which does not say who could not be reached
            broken: Any = error.__context__
            cause = broken.__cause__ or broken
            raise self._unreachable(request.model_name, cause, broken.request.url) from error

    def _parts(self, request: Request) -> list[str]:
        wanted = _format(request)
        tools = ["tools"] if tools_of(request.messages) else []
        return tools if wanted is None else [*tools, "json_object" if wanted == "json" else "json_schema"]

    async def _look_at(self, response: Response) -> None:
        """Refuse an error; have an answer put right before the SDK reads it. An event hook."""
        model_name = json.loads(response.request.content)["model"]
        if response.status_code != 200:
            await response.aread()
            raise self._error(model_name, response.status_code, error_body(response), response.headers)
        stream: Any = response.stream
        if lines := _hearing.get():
            response.stream = listened_to(
                stream, lines.take, lambda: self._put_right(model_name, lines.whole())
            )
        else:
            response.stream = rewritten(stream, lambda body: self._put_right(model_name, body))

    def _put_right(self, model_name: str, body: bytes) -> bytes:
        """Return an answer with what is read of it, and with counts that are counts or are left out."""
        answer = self.read_answer(model_name, _Answer, body)
        if isinstance(answer, Reply):
            message = _Message(content=answer.text, thinking=answer.thinking)
            answer = _Answer(message, answer.finish, model_name, answer.input_tokens, answer.output_tokens)
        counts = vars(answer)
        right = {
            "model": str(answer.model or model_name),
            "message": {"role": "assistant", **answer.message.right()},
            "done_reason": _FINISHES.get(str(answer.done_reason), "stop"),
            "prompt_eval_count": tokens_at(counts, "prompt_eval_count"),
            "eval_count": tokens_at(counts, "eval_count"),
        }
        return json.dumps(right).encode()

    def _unreachable(self, model_name: str, cause: BaseException, url: Any) -> ProviderError:
        unreachable = super()._unreachable(model_name, cause, url)
        unreachable.hint = unreachable.hint or "is `ollama serve` running there?"
        return unreachable

    def _hint_for_unknown(self, model_name: str) -> str:
        return f"ollama pull {model_name}"


def address_of(host: str) -> str:
    """Return the address that `host` or `OLLAMA_HOST` means; raise `ConfigError` when it means none.

    >>> address_of(""), address_of("box"), address_of("https://me:pw@box/path/")
    ('http://127.0.0.1:11434', 'http://box:11434', 'https://me:pw@box:443/path')
    """
    scheme, mark, rest = host.rpartition("://")
    try:
        parts = urlsplit(f"{scheme or 'http'}://{rest}")
        port = parts.port or ({"http": 80, "https": 443}[parts.scheme] if mark else _PORT)
    except (ValueError, KeyError) as error:
        shown = without_userinfo(host)
        raise ConfigError(
            f"provider ollama: no address of a server: {shown!r}", where="config/models.json"
        ) from error
    name = parts.hostname or "127.0.0.1"
    userinfo, at, _ = parts.netloc.rpartition("@")
    bracketed = f"[{name}]" if ":" in name else name
    return f"{parts.scheme}://{userinfo}{at}{bracketed}:{port}{parts.path.rstrip('/')}"


def _format(request: Request) -> Any:
    """Return the format that an answer is to have: a schema, "json", or None where neither is taken.

    Beside tools there is none: held to a format, no model can call one.
    """
    if request.schema is None or "json_object" in request.without or tools_of(request.messages):
        return None
    return "json" if "json_schema" in request.without else request.schema


def _wire_tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool whose description has what the SDK would drop: all of an argument but five keywords."""
    function = tool["function"]
    parameters = function["parameters"]
    described = {name: _described(inner) for name, inner in parameters.get("properties", {}).items()}
    return {**tool, "function": {**function, "parameters": {**parameters, "properties": described}}}


def _described(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    dropped = {key: value for key, value in schema.items() if key not in _KEPT_BY_THE_SDK}
    if not dropped:
        return schema
    told = f"{schema.get('description', '')} JSON Schema: {to_line(dropped)}".strip()
    return {**schema, "description": told}


def _wire_message(message: Message) -> dict[str, Any]:
    """Return a message as Ollama has it, whose calls have no ids."""
    plain = {"role": message["role"], "content": message["content"]}
    if message["role"] == "tool":
        return {**plain, "tool_name": message["tool"]}
    calls = [
        {"function": {"name": call["tool"], "arguments": arguments_of(call)}}
        for call in message.get("calls", ())
    ]
    return {**plain, "tool_calls": calls} if calls else plain
