"""Batch API of a provider: takes many calls at once and answers later at a lower price.

The calls of a batch have custom ids and the batch has a label, so that a batch sent just before a crash of
the engine can be found again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from importlib import import_module
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from lemming.capabilities.hosted_models.sdk_common import SdkBackend
from lemming.kernel.base.errors import ProviderError
from lemming.kernel.providers import LLMProvider, Reply, Request

CLOCK_TOLERANCE = timedelta(minutes=5)
"""A batch that seems this much older than its announcement may still be the announced one."""
WORK_TIMEOUT_S = 600.0
"""Maximum seconds for one step of a batch: the upload or the download of all calls."""
LIMIT_BYTES = 256 << 20
"""The most that may come of one batch."""
_SHIPPED = {
    "openai": "lemming.capabilities.batches.openai_batches:OpenAIBatchApi",
    "anthropic": "lemming.capabilities.batches.anthropic_batches:AnthropicBatchApi",
}
P = TypeVar("P", bound=SdkBackend[Any])


@dataclass(frozen=True, kw_only=True)
class BatchProgress:
    """Progress of a batch. In a finished batch, a call without a reply has failed, expired or never run.

    `finished`: number of calls, successful or failed. `problem`: the first reason for a missing reply.
    """

    is_over: bool
    finished: int = 0
    replies: Mapping[str, Reply] = field(default_factory=dict)
    problem: str = ""


@runtime_checkable
class BatchProvider(Protocol):
    """A provider with a batch API. Every method raises a `ProviderError` for an unreachable provider."""

    takes_batches: bool
    """True if the server in the options has the batch API."""

    def send_batch(self, requests: Mapping[str, Request], label: str) -> str:
        """Send calls by custom id and return the batch's id."""
        ...

    def get_batch_progress(self, batch: str) -> BatchProgress:
        """Return a batch's progress, with the replies by custom id once finished."""
        ...

    def find_batch(self, label: str, custom_ids: Collection[str], since: datetime) -> str | None:
        """Return the id of a batch sent under this label after `since`, or None."""
        ...

    def cancel_batch(self, batch: str) -> None:
        """Ask for an early end of a batch. Finished calls keep their results."""
        ...


def get_batch_provider(provider: LLMProvider, name: str) -> BatchProvider | None:
    """Return the batch provider for a provider of this name (itself or a companion API), or None."""
    if isinstance(provider, BatchProvider) or name not in _SHIPPED:
        return provider if isinstance(provider, BatchProvider) else None
    module, _, class_name = _SHIPPED[name].partition(":")
    api: BatchProvider = getattr(import_module(module), class_name)(provider)
    return api


class BatchApi(ABC, Generic[P]):
    """Batch API of a provider's server, as declared by `BatchProvider`."""

    def __init__(self, provider: P) -> None:
        self.provider, self.takes_batches = provider, provider.takes_batches

    def send_batch(self, requests: Mapping[str, Request], label: str) -> str:
        """Send calls by custom id, start a batch of them, and return the batch's id."""
        bodies = {name: self.provider.request_body(request) for name, request in requests.items()}
        return self.provider.run(lambda client: self._send_batch(client, bodies, label), WORK_TIMEOUT_S)

    def get_batch_progress(self, batch: str) -> BatchProgress:
        """Return a batch's progress, with the replies by custom id once finished."""
        return self.provider.run(lambda client: self._fetch_progress(client, batch), WORK_TIMEOUT_S)

    def find_batch(self, label: str, custom_ids: Collection[str], since: datetime) -> str | None:
        """Return the id of a batch of these calls sent after `since`, or None."""
        return self.provider.run(lambda client: self._find_batch(client, label, custom_ids, since), WORK_TIMEOUT_S)

    def cancel_batch(self, batch: str) -> None:
        """Ask for an early end of a batch. Finished calls keep their results."""
        self.provider.run(lambda client: self._cancel_batch(client, batch), WORK_TIMEOUT_S)

    async def _iter_newest(self, pages: Any, page_type: type[Any], since: datetime, cursor: str) -> AsyncIterator[Any]:
        """Yield the batches sent after `since`, newest first. `cursor`: parameter name for the next page."""
        page_cursor: dict[str, str] = {}
        while True:
            with self.provider.wrap_sdk_errors("batches"):
                response = await pages(limit=100, **page_cursor)
                page = self.provider.parse_body("batches", page_type, await response.http_response.aread())
            for batch in page.data:
                if batch.is_older_than(since):
                    return
                yield batch
            if not (page.has_more and page.data):
                return
            page_cursor = {cursor: page.data[-1].id}

    def parse_replies(self, lines: Iterable[bytes], batch_id: str) -> tuple[dict[str, Reply], str]:
        """Return the replies in a batch's results by custom id, and the first problem. Invalid lines are skipped."""
        replies: dict[str, Reply] = {}
        problem = ""
        for line in filter(bytes.strip, lines):
            try:
                name, result = self.parse_result(line, batch_id)
            except ProviderError as error:
                name, result = "", error.message
            if isinstance(result, Reply):
                replies[name] = result
            else:
                problem = problem or result
        return replies, problem

    @abstractmethod
    def parse_result(self, line: bytes, batch_id: str) -> tuple[str, Reply | str]:
        """Return the custom id and the reply, or the problem, in a line of results."""

    @abstractmethod
    async def _send_batch(self, client: Any, bodies: Mapping[str, dict[str, Any]], label: str) -> str: ...

    @abstractmethod
    async def _fetch_progress(self, client: Any, batch_id: str) -> BatchProgress: ...

    @abstractmethod
    async def _find_batch(
        self, client: Any, label: str, custom_ids: Collection[str], since: datetime
    ) -> str | None: ...

    @abstractmethod
    async def _cancel_batch(self, client: Any, batch_id: str) -> None: ...
