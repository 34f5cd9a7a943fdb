"""What the SDKs of OpenAI and Anthropic have in common: further fields of a request, and their errors."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

from lemming.capabilities.hosted.http import C, HttpBackend, default_key_env, with_extra
from lemming.capabilities.hosted.streams import Stream, put_together
from lemming.kernel.base.errors import ConfigError, TimedOut
from lemming.kernel.providers import Request


async def whole_of(response: Any, stream: Stream) -> bytes:
    """Return a streamed answer as the body it would have been at once, which some servers send anyway."""
    if "text/event-stream" not in response.headers.get("content-type", ""):
        body: bytes = await response.read()
        return body
    return await put_together(response.iter_lines(), stream)


OWN_FIELDS = frozenset({
    "cache_control", "functions", "input", "instructions", "messages", "model", "n", "stream",
    "stream_options", "system", "tools",
})  # fmt: skip
"""What the engine says in a request: `extra` would put something else in the place of what an agent is asked,
of its tools, and of what a limit has reckoned with."""
OUTPUT_FIELDS = frozenset({"max_completion_tokens", "max_output_tokens", "max_tokens"})


def require_extra(name: str, extra: dict[str, Any]) -> dict[str, Any]:
    """Return further fields of a request; raise `ConfigError` for those that are the engine's to say."""
    for key in extra:
        if key in OWN_FIELDS or (key in OUTPUT_FIELDS and extra[key] is not None):
            message = f'provider {name}: options.extra may not have "{key}": that is what the engine asks'
            hint = "write max_output_tokens beside options" if key in OUTPUT_FIELDS else "take it out"
            raise ConfigError(message, where="config/models.json", hint=hint)
    return extra


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
        self._base_url, self._extra = base_url, require_extra(self.name, extra or {})

    def body(self, request: Request) -> dict[str, Any]:
        """Return a request as it goes over the wire, and as a batch holds it."""
        fields = self._arguments(request)
        further = fields.pop("extra_body", {})
        return {**fields, **further}

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
        # Before the next one, of which it is a kind.
        except sdk.APITimeoutError as error:
            raise TimedOut("the connection timed out", where=self.name) from error
        except sdk.APIConnectionError as error:
            raise self._unreachable(about, error) from error

    @abstractmethod
    def _sdk(self) -> Any:
        """Return the SDK's module, which holds what it raises."""

    @abstractmethod
    def _fields(self, request: Request) -> dict[str, Any]:
        """Return the fields of a request, without those that the settings add."""
