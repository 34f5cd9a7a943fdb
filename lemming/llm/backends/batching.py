"""What the SDKs of OpenAI and Anthropic have in common: their errors, and a batch API beside the calls."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from datetime import datetime
from typing import Any

from lemming.base.errors import ConfigError, TimedOut
from lemming.llm.backends.http import C, HttpBackend, default_key_env, with_extra
from lemming.llm.batch.api import BatchProgress
from lemming.llm.streaming import Stream, put_together
from lemming.providers import Request

BATCH_WORK_S = 600.0
"""How long one piece of work with a batch may take: the upload or the download of all its calls."""


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


class BatchingBackend(HttpBackend[C]):
    """A backend whose server may take batches. `extra` holds further fields of a request.

    `own`: the variable that holds the key of the SDK's own server, and the domain of that.
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

    def send_batch(self, requests: Mapping[str, Request], label: str) -> str:
        """Send calls by their custom ids, start a batch of them, and return its id."""
        bodies = {name: self._body(request) for name, request in requests.items()}
        return self._run(lambda client: self._send(client, bodies, label), BATCH_WORK_S)

    def look_at_batch(self, batch: str) -> BatchProgress:
        """Return how far a batch is, with the replies by custom id once it is over."""
        return self._run(lambda client: self._look(client, batch), BATCH_WORK_S)

    def find_batch(self, label: str, custom_ids: Collection[str], since: datetime) -> str | None:
        """Return the id of a batch of these calls that was sent after that time; None if there is none."""
        return self._run(lambda client: self._find(client, label, custom_ids, since), BATCH_WORK_S)

    def cancel_batch(self, batch: str) -> None:
        """Ask for a batch to be ended early; what it has finished is kept."""
        self._run(lambda client: self._cancel(client, batch), BATCH_WORK_S)

    async def _newest(self, pages: Any, kind: type[Any], since: datetime, cursor: str) -> AsyncIterator[Any]:
        """Yield the batches that were sent after that time, newest first; `cursor` asks for the next page."""
        after: dict[str, str] = {}
        while True:
            with self._as_ours("batches"):
                response = await pages(limit=100, **after)
                page = self._read("batches", kind, await response.http_response.aread())
            for batch in page.data:
                if batch.is_older_than(since):
                    return
                yield batch
            if not (page.has_more and page.data):
                return
            after = {cursor: page.data[-1].id}

    def _body(self, request: Request) -> dict[str, Any]:
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
    def _as_ours(self, about: str) -> Iterator[None]:
        """Turn whatever the SDK raises in the block into a `ProviderError`."""
        sdk = self._sdk()
        try:
            yield
        except sdk.APIStatusError as error:
            raise self._error(about, error.status_code, error.body, error.response.headers) from error
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

    @abstractmethod
    async def _send(self, client: C, bodies: Mapping[str, dict[str, Any]], label: str) -> str: ...

    @abstractmethod
    async def _look(self, client: C, batch_id: str) -> BatchProgress: ...

    @abstractmethod
    async def _find(
        self, client: C, label: str, custom_ids: Collection[str], since: datetime
    ) -> str | None: ...

    @abstractmethod
    async def _cancel(self, client: C, batch_id: str) -> None: ...
