"""What a provider with a batch API can do: take many calls at once, and answer them later at a lower price.

The calls of a batch are known by their custom ids, and the batch by a label, so that one that was sent
just before the engine died can be found again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from importlib import import_module
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from lemming.capabilities.hosted.sdk import SdkBackend
from lemming.kernel.base.errors import ProviderError
from lemming.kernel.providers import LLMProvider, Reply, Request

CLOCKS_DIFFER_BY = timedelta(minutes=5)
"""A batch that seems this much older than its announcement may still be the announced one."""
WORK_S = 600.0
"""How long one piece of work with a batch may take: the upload or the download of all its calls."""
LIMIT_BYTES = 256 << 20
"""The most that may come of one batch."""
_SHIPPED = {
    "openai": "lemming.capabilities.batches.openai:OpenAIBatches",
    "anthropic": "lemming.capabilities.batches.anthropic:AnthropicBatches",
}
P = TypeVar("P", bound=SdkBackend[Any])


@dataclass(frozen=True, kw_only=True)
class BatchProgress:
    """How far a batch is. Once it is over, a call without a reply has failed, expired or never been run.

    `finished` counts calls, well or badly. `problem` is the first reason why a call has no reply.
    """

    is_over: bool
    finished: int = 0
    replies: Mapping[str, Reply] = field(default_factory=dict)
    problem: str = ""


@runtime_checkable
class TakesBatches(Protocol):
    """A provider with a batch API. Every method raises a `ProviderError` when the provider is silent."""

    takes_batches: bool
    """Whether this one's server has the API, as its options say."""

    def send_batch(self, requests: Mapping[str, Request], label: str) -> str:
        """Send calls by their custom ids, and return the batch's id."""
        ...

    def look_at_batch(self, batch: str) -> BatchProgress:
        """Return how far a batch is, with the replies by custom id once it is over."""
        ...

    def find_batch(self, label: str, custom_ids: Collection[str], since: datetime) -> str | None:
        """Return the id of a batch that was sent under this label after that time; None if there is none."""
        ...

    def cancel_batch(self, batch: str) -> None:
        """Ask for a batch to be ended early; what it has finished is kept."""
        ...


def with_batches(provider: LLMProvider, name: str) -> TakesBatches | None:
    """Return what takes batches for a provider of this name: itself, or the API beside it; None: nothing."""
    if isinstance(provider, TakesBatches) or name not in _SHIPPED:
        return provider if isinstance(provider, TakesBatches) else None
    module, _, kind = _SHIPPED[name].partition(":")
    api: TakesBatches = getattr(import_module(module), kind)(provider)
    return api


class Sent(Protocol):
    """A batch as a server's list has it."""

    id: str

    def is_older_than(self, moment: datetime) -> bool:
        """Whether it was made before that, as far as two clocks can tell."""
        ...


class BatchApi(ABC, Generic[P]):
    """The batch API of the server that a provider asks, as `TakesBatches` says."""

    def __init__(self, provider: P) -> None:
        self.provider, self.takes_batches = provider, provider.takes_batches

    def send_batch(self, requests: Mapping[str, Request], label: str) -> str:
        """Send calls by their custom ids, start a batch of them, and return its id."""
        bodies = {name: self.provider.body(request) for name, request in requests.items()}
        return self.provider.run(lambda client: self._send(client, bodies, label), WORK_S)

    def look_at_batch(self, batch: str) -> BatchProgress:
        """Return how far a batch is, with the replies by custom id once it is over."""
        return self.provider.run(lambda client: self._look(client, batch), WORK_S)

    def find_batch(self, label: str, custom_ids: Collection[str], since: datetime) -> str | None:
        """Return the id of a batch of these calls that was sent after that time; None if there is none."""
        return self.provider.run(lambda client: self._find(client, label, custom_ids, since), WORK_S)

    def cancel_batch(self, batch: str) -> None:
        """Ask for a batch to be ended early; what it has finished is kept."""
        self.provider.run(lambda client: self._cancel(client, batch), WORK_S)

    async def _newest(self, pages: Any, kind: type[Any], since: datetime, cursor: str) -> AsyncIterator[Any]:
        """Yield the batches that were sent after that time, newest first; `cursor` asks for the next page."""
        after: dict[str, str] = {}
        while True:
            with self.provider.as_ours("batches"):
                response = await pages(limit=100, **after)
                page = self.provider.read("batches", kind, await response.http_response.aread())
            for batch in page.data:
                if batch.is_older_than(since):
                    return
                yield batch
            if not (page.has_more and page.data):
                return
            after = {cursor: page.data[-1].id}

    def replies_in(self, lines: Iterable[bytes], about: str) -> tuple[dict[str, Reply], str]:
        """Return the replies in a batch's results by custom id, and the first reason why a call has none.

        A line that is not an answer has no reply, and is no reason to lose the others.
        """
        replies: dict[str, Reply] = {}
        problem = ""
        for line in filter(bytes.strip, lines):
            try:
                name, found = self.result_in(line, about)
            except ProviderError as error:
                name, found = "", error.message
            if isinstance(found, Reply):
                replies[name] = found
            else:
                problem = problem or found
        return replies, problem

    @abstractmethod
    def result_in(self, line: bytes, about: str) -> tuple[str, Reply | str]:
        """Return what a line of results holds: a custom id with its reply, or with why there is none."""

    @abstractmethod
    async def _send(self, client: Any, bodies: Mapping[str, dict[str, Any]], label: str) -> str: ...

    @abstractmethod
    async def _look(self, client: Any, batch_id: str) -> BatchProgress: ...

    @abstractmethod
    async def _find(
        self, client: Any, label: str, custom_ids: Collection[str], since: datetime
    ) -> str | None: ...

    @abstractmethod
    async def _cancel(self, client: Any, batch_id: str) -> None: ...
