"""Common parts of the backends over the SDKs of OpenAI and Anthropic: transport, extra fields and errors.

Both send through aiohttp, which takes a third of the CPU of their default transport.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies
from weakref import WeakKeyDictionary

from lemming.capabilities.hosted_models.answer_streams import AnswerStream, assemble_stream
from lemming.capabilities.hosted_models.bounded_response import client_settings
from lemming.capabilities.hosted_models.provider_http import C, HttpBackend, default_key_env, error_body
from lemming.capabilities.hosted_models.rate_headers import with_limit_wait
from lemming.ext import ConfigError
from lemming.kernel.base.errors import ProviderError, TimedOut
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.base.redaction.secrets import strip_userinfo
from lemming.kernel.providers import Reply, Request
from lemming.libraries.streaming import DeltaCallback

if TYPE_CHECKING:
    import httpx2


RESERVED_FIELDS = frozenset({
    "cache_control", "functions", "input", "instructions", "messages", "model", "n", "stream",
    "stream_options", "system", "tools",
})  # fmt: skip
"""Fields of a request that `extra` must not replace: the prompt, the tools, and the basis of limits."""
MAX_CONNECTIONS, KEEPALIVE_S = 1000, 60.0
"""The connection limit of the SDKs. They drop an idle connection after 5 seconds, but ticks are a minute apart."""
OUTPUT_FIELDS = frozenset({"max_completion_tokens", "max_output_tokens", "max_tokens"})


class _Route(NamedTuple):
    """HTTP client and target URL of a client's requests, with the headers of its SDK."""

    http_client: httpx2.AsyncClient
    url: httpx2.URL
    headers: httpx2.Headers


class SdkBackend(HttpBackend[C]):
    """Backend over an SDK, for a server with one of these APIs. `extra` holds additional request fields.

    `batches`: the server has the batch API. With null, only the SDK's official server has the API.
    `official_api`: the variable with the key of the official server, and its domain.
    """

    request_id_header: ClassVar[str]
    _path: str

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
        self._extra = extra or {}
        for field in self._extra:
            if field in RESERVED_FIELDS or (field in OUTPUT_FIELDS and self._extra[field] is not None):
                message = f'provider {self.name}: options.extra must not contain "{field}": the engine sets it'
                hint = "write max_output_tokens beside options" if field in OUTPUT_FIELDS else "remove it"
                raise ConfigError(message, where="config/models.json", hint=hint)
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
        client: Any = self._make_client(http_client, key)
        headers = {**client.auth_headers, **client.default_headers}
        header_texts = {name: value for name, value in headers.items() if isinstance(value, str)}
        url = httpx2.URL(f"{str(client.base_url).rstrip('/')}{self._path}")
        self._routes[client] = _Route(http_client, url, httpx2.Headers(header_texts))
        return cast(C, client)

    async def _send_request(self, client: C, request: Request, on_delta: DeltaCallback | None = None) -> Reply:
        """Send a request with the SDK's HTTP client and return the reply.

        The SDK's own `post` takes as much CPU to build a request as to send the request. Raises: ProviderError for a
        failed connection, an error status or a malformed answer.
        """
        import aiohttp
        import httpx2

        http_client, url, headers = self._routes[client]
        body, stream = self.request_body(request), self._make_stream(on_delta) if on_delta else None
        content = dump_compact({**body, **self._stream_fields()} if stream else body)
        question = httpx2.Request("POST", url, headers=headers, content=content)
        try:
            response = await http_client.send(question, stream=stream is not None)
            try:
                # Some servers ignore streaming and send the body anyway.
                is_stream = "text/event-stream" in response.headers.get("content-type", "")
                if stream is not None and is_stream and not response.is_error:
                    answer = await assemble_stream(response.aiter_lines(), stream)
                else:
                    answer = await response.aread()
            finally:
                await response.aclose()
        except (httpx2.HTTPError, aiohttp.ClientError) as error:
            raise self._connection_error(request.model_name, error, url) from error
        if response.is_error:
            raise self._status_error(request.model_name, response.status_code, error_body(response), response.headers)
        request_id = response.headers.get(self.request_id_header)
        return with_limit_wait(self.parse_reply(answer, request_id, request.model_name), response.headers)

    def request_body(self, request: Request) -> dict[str, Any]:
        """Return a request in the form sent over the wire and stored in batches. A null value in `extra` removes a field."""
        extra_fields = self._extra_fields(request)
        fields = {name: value for name, value in self._request_fields(request).items() if name not in extra_fields}
        return fields | {name: value for name, value in extra_fields.items() if value is not None}

    def to_body(self, request: Request) -> dict[str, Any]:
        """Return a request in the form sent to the server."""
        return self.request_body(self.inline_tools(request))

    def _extra_fields(self, request: Request) -> dict[str, Any]:
        return {**self._extra, **(request.extra or {})}

    def _stream_fields(self) -> dict[str, Any]:
        """Return the further fields of a request for a stream."""
        return {"stream": True}

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

        causes = [error]
        while (inner := causes[-1].__cause__) is not None:
            causes.append(inner)
        kinds: Any = ProviderError, aiohttp.ClientError, httpx2.HTTPError
        cause = next((candidate for kind in kinds for candidate in causes if isinstance(candidate, kind)), error)
        if isinstance(cause, TimeoutError | httpx2.TimeoutException):
            return TimedOut("the connection timed out", where=self.name)
        return self._unreachable_error(about, cause, url)

    @abstractmethod
    def _make_client(self, http_client: httpx2.AsyncClient, key: str) -> C:
        """Return the SDK's client around an HTTP client, without retries and timeouts."""

    @abstractmethod
    def _make_stream(self, on_delta: DeltaCallback) -> AnswerStream:
        """Return the stream that assembles an answer."""

    @abstractmethod
    def parse_reply(self, body: bytes, request_id: str | None, model_name: str) -> Reply:
        """Return the reply in the body of an answer. Raises: ProviderError for a failed or malformed answer."""

    @abstractmethod
    def _sdk_module(self) -> Any:
        """Return the SDK's module, with its HTTP clients and error classes."""

    @abstractmethod
    def _request_fields(self, request: Request) -> dict[str, Any]:
        """Return the fields of a request, without the fields added by the settings."""
