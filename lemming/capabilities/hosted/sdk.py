"""What the SDKs of OpenAI and Anthropic have in common: their transport, further fields, and their errors.

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

from lemming.capabilities.hosted.bounded import client_settings
from lemming.capabilities.hosted.counting import Post
from lemming.capabilities.hosted.http import C, HttpBackend, default_key_env, error_body, with_extra
from lemming.capabilities.hosted.streams import Stream, put_together
from lemming.kernel.base.errors import ConfigError, ProviderError, TimedOut
from lemming.kernel.base.jsontext import compact
from lemming.kernel.base.redaction.secrets import without_userinfo
from lemming.kernel.providers import Request

if TYPE_CHECKING:
    import httpx2


async def whole_of(response: Any, stream: Stream) -> bytes:
    """Return a streamed answer as the body it would have been at once, which some servers send anyway."""
    if "text/event-stream" not in response.headers.get("content-type", ""):
        body: bytes = await response.read()
        return body
    return await put_together(response.iter_lines(), stream)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, its cause, the cause of that, and so on."""
    while error:
        yield error
        error = error.__cause__


OWN_FIELDS = frozenset({
    "cache_control", "functions", "input", "instructions", "messages", "model", "n", "stream",
    "stream_options", "system", "tools",
})  # fmt: skip
"""What the engine says in a request: `extra` would put something else in the place of what an agent is asked,
of its tools, and of what a limit has reckoned with."""
MOST_CONNECTIONS, KEPT_ALIVE_S = 1000, 60.0
"""As many connections as the SDKs have. They keep an idle one for 5 seconds, but ticks are a minute apart."""
OUTPUT_FIELDS = frozenset({"max_completion_tokens", "max_output_tokens", "max_tokens"})


def require_extra(name: str, extra: dict[str, Any]) -> dict[str, Any]:
    """Return further fields of a request; raise `ConfigError` for those that are the engine's to say."""
    for key in extra:
        if key in OWN_FIELDS or (key in OUTPUT_FIELDS and extra[key] is not None):
            message = f'provider {name}: options.extra may not have "{key}": that is what the engine asks'
            hint = "write max_output_tokens beside options" if key in OUTPUT_FIELDS else "take it out"
            raise ConfigError(message, where="config/models.json", hint=hint)
    return extra


class _Route(NamedTuple):
    """Where the questions of a client go, and the headers that its SDK gives them."""

    url: httpx2.URL
    headers: httpx2.Headers


class SdkBackend(HttpBackend[C]):
    """A backend of a server with one of these APIs. `extra` holds further fields of a request.

    `batches`: whether the server has the batch API too; null: only the SDK's own has. `own`: the variable
    that holds the key of that one, and its domain.
    """

    def __init__(
        self,
        *,
        base_url: str | None,
        api_key_env: str | None,
        own: tuple[str, str],
        extra: dict[str, Any] | None,
        batches: bool | None,
    ) -> None:
        needs_key = base_url is None or api_key_env is not None
        key_env = api_key_env or default_key_env(own[0], base_url, own[1])
        super().__init__(base_url=base_url, key_env=key_env, needs_key=needs_key)
        self.takes_batches = base_url is None if batches is None else batches
        host = urlsplit(base_url).hostname or "" if base_url else own[1]
        self.is_own = host == own[1] or host.endswith(f".{own[1]}")
        # A password in the address would be sent beside the key, which aiohttp refuses.
        self._base_url = without_userinfo(base_url) if base_url else base_url
        self._extra = require_extra(self.name, extra or {})
        self._http_clients: WeakKeyDictionary[C, httpx2.AsyncClient] = WeakKeyDictionary()
        self._routes: WeakKeyDictionary[C, _Route] = WeakKeyDictionary()

    def _connect(self, key: str) -> C:
        import httpx2

        sdk = self._sdk()
        # Whoever goes out through a SOCKS proxy has the default transport: aiohttp knows none.
        is_behind_socks = any(proxy.startswith("socks") for proxy in getproxies().values())
        kind = sdk.DefaultAsyncHttpxClient if is_behind_socks else sdk.DefaultAioHttpClient
        parts = urlsplit(self._address)
        login = (unquote(parts.username or ""), unquote(parts.password or ""))
        limits = httpx2.Limits(max_connections=MOST_CONNECTIONS, keepalive_expiry=KEPT_ALIVE_S)
        http_client = kind(**client_settings(), limits=limits, **({"auth": login} if any(login) else {}))
        client = self._client_with(http_client, key)
        self._http_clients[client] = http_client
        return client

    async def _post(self, client: C, path: str, request: Request) -> httpx2.Response:
        """Send a question with the SDK's HTTP client; raise a `ProviderError` unless there is an answer.

        Not with the SDK's `post`, which takes as much CPU to put a question together as to send it.
        """
        import aiohttp
        import httpx2

        route = self._routes.get(client)
        if route is None:
            sdk_client: Any = client
            headers = {**sdk_client.auth_headers, **sdk_client.default_headers}
            said = {name: value for name, value in headers.items() if isinstance(value, str)}
            url = httpx2.URL(f"{str(sdk_client.base_url).rstrip('/')}{path}")
            route = self._routes[client] = _Route(url, httpx2.Headers(said))
        question = httpx2.Request(
            "POST", route.url, headers=route.headers, content=compact(self.body(request))
        )
        try:
            response = await self._http_clients[client].send(question)
        except (httpx2.HTTPError, aiohttp.ClientError) as error:
            raise self._connection_error(request.model_name, error, route.url) from error
        if response.is_error:
            raise self._error(
                request.model_name, response.status_code, error_body(response), response.headers
            )
        return response

    def body(self, request: Request) -> dict[str, Any]:
        """Return a request as it goes over the wire, and as a batch holds it."""
        fields = self._arguments(request)
        further = fields.pop("extra_body", {})
        return {**fields, **further}

    def to_body(self, request: Request) -> dict[str, Any]:
        """Return a request as its server is sent it."""
        return self.body(self.worded(request))

    def poster(self, client: Any, about: str) -> Post:
        """Return what posts JSON through a client, with the SDK's own addresses, key and errors."""

        async def post(path: str, body: dict[str, Any]) -> Any:
            with self.as_ours(about):
                try:
                    return await client.post(path, cast_to=object, body=body)
                except ValueError:  # it is no JSON
                    return None

        return post

    def _arguments(self, request: Request) -> dict[str, Any]:
        """Return a request as the SDK takes it."""
        return with_extra(self._fields(request), self._further(request))

    def _further(self, request: Request) -> dict[str, Any]:
        return {**self._extra, **(request.extra or {})}

    @contextlib.contextmanager
    def as_ours(self, about: str) -> Iterator[None]:
        """Turn whatever the SDK raises in the block into a `ProviderError`."""
        sdk = self._sdk()
        try:
            yield
        except sdk.APIStatusError as error:
            raise self._error(about, error.status_code, error.body, error.response.headers) from error
        except sdk.APIConnectionError as error:
            raise self._connection_error(about, error, error.request.url) from error

    def _connection_error(self, about: str, error: BaseException, url: Any) -> ProviderError:
        """Return the error for a connection that failed, by the first library that said so.

        The SDKs' transports turn some errors of aiohttp into ones that mean something else: a connection that
        the server closed into one that was never made, or that took too long to make.
        """
        import aiohttp
        import httpx2

        causes = [*_causes(error)]
        kinds: Any = ProviderError, aiohttp.ClientError, httpx2.HTTPError
        cause = next((it for kind in kinds for it in causes if isinstance(it, kind)), error)
        if isinstance(cause, TimeoutError | httpx2.TimeoutException):
            return TimedOut("the connection timed out", where=self.name)
        return self._unreachable(about, cause, url)

    @abstractmethod
    def _client_with(self, http_client: httpx2.AsyncClient, key: str) -> C:
        """Return the SDK's client around an HTTP client, which retries nothing and has no timeouts."""

    @abstractmethod
    def _sdk(self) -> Any:
        """Return the SDK's module, which holds its HTTP clients and what it raises."""

    @abstractmethod
    def _fields(self, request: Request) -> dict[str, Any]:
        """Return the fields of a request, without those that the settings add."""
