"""Common parts of the backends over the SDKs of OpenAI and Anthropic: transport, extra fields and errors.

Both send through aiohttp, which takes a third of the CPU of their default transport.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies
from weakref import WeakKeyDictionary

from lemming.capabilities.hosted_models.answer_streams import AnswerStream, assemble_stream
from lemming.capabilities.hosted_models.bounded_response import client_settings
from lemming.capabilities.hosted_models.provider_http import (
    C,
    HttpBackend,
    default_key_env,
    error_body,
    split_extra_fields,
)
from lemming.ext import ConfigError
from lemming.kernel.base.errors import ProviderError, TimedOut
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.base.redaction.secrets import strip_userinfo
from lemming.kernel.providers import Request

if TYPE_CHECKING:
    import httpx2


async def load_full_body(response: Any, stream: AnswerStream) -> bytes:
    """Return a streamed answer as a complete body. Some servers ignore streaming and send the body anyway."""
    if "text/event-stream" not in response.headers.get("content-type", ""):
        body: bytes = await response.read()
        return body
    return await assemble_stream(response.iter_lines(), stream)


def _iter_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its chain of causes."""
    while error:
        yield error
        error = error.__cause__


RESERVED_FIELDS = frozenset({
    "cache_control", "functions", "input", "instructions", "messages", "model", "n", "stream",
    "stream_options", "system", "tools",
})  # fmt: skip
"""Fields of a request that `extra` must not replace: the prompt, the tools, and the basis of limits."""
MAX_CONNECTIONS, KEEPALIVE_S = 1000, 60.0
"""The connection limit of the SDKs. They drop an idle connection after 5 seconds, but ticks are a minute apart."""
OUTPUT_FIELDS = frozenset({"max_completion_tokens", "max_output_tokens", "max_tokens"})


def validate_extra_fields(name: str, extra: dict[str, Any]) -> dict[str, Any]:
    """Return the extra fields of a request. Raises: ConfigError for fields reserved for the engine."""
    for key in extra:
        if key in RESERVED_FIELDS or (key in OUTPUT_FIELDS and extra[key] is not None):
            message = f'provider {name}: options.extra must not contain "{key}": the engine sets it'
            hint = "write max_output_tokens beside options" if key in OUTPUT_FIELDS else "remove it"
            raise ConfigError(message, where="config/models.json", hint=hint)
    return extra


class _Route(NamedTuple):
    """Target URL of a client's requests, with the headers of its SDK."""

    url: httpx2.URL
    headers: httpx2.Headers


class SdkBackend(HttpBackend[C]):
    """Backend over an SDK, for a server with one of these APIs. `extra` holds additional request fields.

    `batches`: the server has the batch API. With null, only the SDK's official server has the API.
    `official_api`: the variable with the key of the official server, and its domain.
    """

    def __init__(
        self,
        *,
        base_url: str | None,
        api_key_env: str | None,
        official_api: tuple[str, str],
        extra: dict[str, Any] | None,
        batches: bool | None,
    ) -> None:
        needs_key = base_url is None or api_key_env is not None
        key_env = api_key_env or default_key_env(official_api[0], base_url, official_api[1])
        super().__init__(base_url=base_url, key_env=key_env, needs_key=needs_key)
        self.takes_batches = base_url is None if batches is None else batches
        # A password in the address would be sent beside the key, which aiohttp refuses.
        self._base_url = strip_userinfo(base_url) if base_url else base_url
        self._extra = validate_extra_fields(self.name, extra or {})
        self._http_clients: WeakKeyDictionary[C, httpx2.AsyncClient] = WeakKeyDictionary()
        self._routes: WeakKeyDictionary[C, _Route] = WeakKeyDictionary()

    def _create_client(self, key: str) -> C:
        import httpx2

        sdk = self._sdk_module()
        # Whoever goes out through a SOCKS proxy has the default transport: aiohttp knows none.
        uses_socks = any(proxy.startswith("socks") for proxy in getproxies().values())
        client_type = sdk.DefaultAsyncHttpxClient if uses_socks else sdk.DefaultAioHttpClient
        parts = urlsplit(self._address)
        login = (unquote(parts.username or ""), unquote(parts.password or ""))
        limits = httpx2.Limits(max_connections=MAX_CONNECTIONS, keepalive_expiry=KEEPALIVE_S)
        http_client = client_type(**client_settings(), limits=limits, **({"auth": login} if any(login) else {}))
        client = self._make_client(http_client, key)
        self._http_clients[client] = http_client
        return client

    async def _post(self, client: C, path: str, request: Request) -> httpx2.Response:
        """Send a request with the SDK's HTTP client and return the response.

        The SDK's own `post` takes as much CPU to build a request as to send the request. Raises: ProviderError for a
        failed connection or an error status.
        """
        import aiohttp
        import httpx2

        route = self._routes.get(client)
        if route is None:
            sdk_client: Any = client
            headers = {**sdk_client.auth_headers, **sdk_client.default_headers}
            header_texts = {name: value for name, value in headers.items() if isinstance(value, str)}
            url = httpx2.URL(f"{str(sdk_client.base_url).rstrip('/')}{path}")
            route = self._routes[client] = _Route(url, httpx2.Headers(header_texts))
        question = httpx2.Request(
            "POST", route.url, headers=route.headers, content=dump_compact(self.request_body(request))
        )
        try:
            response = await self._http_clients[client].send(question)
        except (httpx2.HTTPError, aiohttp.ClientError) as error:
            raise self._connection_error(request.model_name, error, route.url) from error
        if response.is_error:
            raise self._status_error(request.model_name, response.status_code, error_body(response), response.headers)
        return response

    def request_body(self, request: Request) -> dict[str, Any]:
        """Return a request in the form sent over the wire and stored in batches."""
        fields = self._sdk_arguments(request)
        extra_fields = fields.pop("extra_body", {})
        return {**fields, **extra_fields}

    def to_body(self, request: Request) -> dict[str, Any]:
        """Return a request in the form sent to the server."""
        return self.request_body(self.inline_tools(request))

    def _sdk_arguments(self, request: Request) -> dict[str, Any]:
        """Return a request as arguments of the SDK."""
        return split_extra_fields(self._request_fields(request), self._extra_fields(request))

    def _extra_fields(self, request: Request) -> dict[str, Any]:
        return {**self._extra, **(request.extra or {})}

    @contextlib.contextmanager
    def wrap_sdk_errors(self, about: str) -> Iterator[None]:
        """Convert errors of the SDK inside the block to a `ProviderError`."""
        sdk = self._sdk_module()
        try:
            yield
        except sdk.APIStatusError as error:
            raise self._status_error(about, error.status_code, error.body, error.response.headers) from error
        except sdk.APIConnectionError as error:
            raise self._connection_error(about, error, error.request.url) from error

    def _connection_error(self, about: str, error: BaseException, url: Any) -> ProviderError:
        """Return the error for a failed connection, based on the first library in the chain of causes.

        The SDKs' transports convert some errors of aiohttp to misleading ones: a connection closed by the
        server becomes a connection never made, or a timeout while connecting.
        """
        import aiohttp
        import httpx2

        causes = [*_iter_causes(error)]
        kinds: Any = ProviderError, aiohttp.ClientError, httpx2.HTTPError
        cause = next((candidate for kind in kinds for candidate in causes if isinstance(candidate, kind)), error)
        if isinstance(cause, TimeoutError | httpx2.TimeoutException):
            return TimedOut("the connection timed out", where=self.name)
        return self._unreachable_error(about, cause, url)

    @abstractmethod
    def _make_client(self, http_client: httpx2.AsyncClient, key: str) -> C:
        """Return the SDK's client around an HTTP client, without retries and timeouts."""

    @abstractmethod
    def _sdk_module(self) -> Any:
        """Return the SDK's module, with its HTTP clients and error classes."""

    @abstractmethod
    def _request_fields(self, request: Request) -> dict[str, Any]:
        """Return the fields of a request, without the fields added by the settings."""
