"""A local Ollama server, asked over HTTP as its API documentation says (`POST /api/chat`)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from lemming.backends.bounded import client_settings
from lemming.backends.http import HttpBackend
from lemming.errors import ConfigError, ProviderError, TimedOut
from lemming.jsontext import JsonProblem, parse
from lemming.providers import Reply, Request, tokens_at
from lemming.redaction import name_variables, without_userinfo

if TYPE_CHECKING:
    from httpx import AsyncClient, Response

_PORT = 11434


@dataclass(frozen=True)
class _Message:
    content: str | None = None


@dataclass(frozen=True)
class _Chat:
    """An answer: the parts of it that are read."""

    message: _Message
    done_reason: Any = None
    model: Any = None
    prompt_eval_count: Any = None  # an answer is there, whatever is odd about its usage
    eval_count: Any = None


class _Client:
    """The connection to a server, with the `close` that SDKs' clients have."""

    def __init__(self, http: AsyncClient) -> None:
        self.http = http

    async def close(self) -> None:
        await self.http.aclose()


class OllamaProvider(HttpBackend["_Client"]):
    """Asks Ollama at `host`, or where `OLLAMA_HOST` says, or at http://127.0.0.1:11434.

    `num_ctx` is the context in tokens (Ollama cuts longer prompts without a word), `keep_alive` how long
    the model stays in memory (such as "10m"), `extra` holds further model options (such as `top_k`).
    """

    name = "ollama"
    takes_extra = True
    takes_schema = True

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
        self._options = {**({} if num_ctx is None else {"num_ctx": num_ctx}), **(extra or {})}

    def _connect(self, key: str) -> _Client:
        from httpx import AsyncClient

        settings = client_settings()
        if key != "none":
            settings["headers"]["authorization"] = f"Bearer {key}"
        address = address_of(self._host or os.environ.get("OLLAMA_HOST") or "")
        return _Client(AsyncClient(base_url=address, **settings))

    async def _ask(self, client: _Client, request: Request) -> Reply:
        response = await self._post(client, request)
        if response.status_code != 200:
            raise self._error(request.model_name, response.status_code, _problem(response), response.headers)
        answer = self._read(request.model_name, _Chat, response.content)
        return Reply(
            text=answer.message.content or "",
            input_tokens=tokens_at({"count": answer.prompt_eval_count}, "count"),
            output_tokens=tokens_at({"count": answer.eval_count}, "count"),
            finish="length" if answer.done_reason == "length" else "stop",
            model=str(answer.model or request.model_name),
        )

    async def _post(self, client: _Client, request: Request) -> Response:
        import httpx

        options = {"num_predict": request.max_output_tokens, "seed": request.seed}
        temperature = {} if request.temperature is None else {"temperature": request.temperature}
        body: dict[str, Any] = {
            "model": request.model_name,
            "messages": request.messages,
            "stream": False,
            "options": {**options, **temperature, **self._options, **(request.extra or {})},
        }
        if request.schema is not None:
            body["format"] = request.schema
        if self._keep_alive is not None:
            body["keep_alive"] = self._keep_alive
        try:
            return await client.http.post("api/chat", json=body)
        except httpx.TimeoutException as error:
            raise TimedOut("the connection timed out", where=self.name) from error
        except httpx.HTTPError as error:
            raise self._unreachable(request.model_name, error) from error

    def _unreachable(self, model_name: str, error: Any) -> ProviderError:
        unreachable = super()._unreachable(model_name, error)
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


def _problem(response: Response) -> object:
    try:
        body: object = parse(response.content)
    except JsonProblem:
        return response.text
    return body if isinstance(body, Mapping) else response.text
