"""Anthropic's batches, which carry no label, and show whose calls they hold only when they are over."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lemming.capabilities.batches.api import CLOCKS_DIFFER_BY, LIMIT_BYTES, BatchApi, BatchProgress
from lemming.capabilities.hosted.anthropic import AnthropicProvider
from lemming.capabilities.hosted.anthropic_wire import Message
from lemming.capabilities.hosted.bounded import answers_up_to
from lemming.kernel.base.redaction.secrets import excerpt
from lemming.kernel.providers import Reply

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic


@dataclass(frozen=True)
class _Counts:
    processing: int = 0
    succeeded: int = 0
    errored: int = 0
    canceled: int = 0
    expired: int = 0


@dataclass(frozen=True)
class _Batch:
    """A batch, as far as it is read. The SDK's own type has every field, and checks none."""

    id: str
    processing_status: str
    created_at: datetime
    results_url: str | None = None
    request_counts: _Counts = field(default_factory=_Counts)

    @property
    def is_over(self) -> bool:
        return self.processing_status == "ended"

    @property
    def finished(self) -> int:
        """How many calls are finished, well or badly. This API counts them when all are."""
        counts = self.request_counts
        return counts.succeeded + counts.errored + counts.canceled + counts.expired

    def is_older_than(self, moment: datetime) -> bool:
        return self.created_at < moment - CLOCKS_DIFFER_BY


@dataclass(frozen=True)
class _Page:
    data: list[_Batch] = field(default_factory=list)
    has_more: bool = False


@dataclass(frozen=True)
class _Detail:
    message: str = "no details"


@dataclass(frozen=True)
class _Error:
    error: _Detail | None = None


@dataclass(frozen=True)
class _Outcome:
    type: str
    message: Message | None = None
    error: _Error | None = None


@dataclass(frozen=True)
class _Result:
    custom_id: str
    result: _Outcome


class AnthropicBatches(BatchApi[AnthropicProvider]):
    """The Message Batches of Anthropic."""

    async def _send(self, client: AsyncAnthropic, bodies: Mapping[str, dict[str, Any]], label: str) -> str:
        """Send the calls; a label has no place in this API."""
        calls = [{"custom_id": name, "params": body} for name, body in bodies.items()]
        create: Any = client.messages.batches.with_raw_response.create
        with self.provider.as_ours("batches"):
            response = await create(requests=calls)
            body = await response.read()
        return self.provider.read("batches", _Batch, body).id

    async def _look(self, client: AsyncAnthropic, batch_id: str) -> BatchProgress:
        with self.provider.as_ours(batch_id):
            response: Any = await client.messages.batches.with_raw_response.retrieve(batch_id)
            batch = self.provider.read(batch_id, _Batch, await response.read())
        if not batch.is_over:
            return BatchProgress(is_over=False, finished=batch.finished)
        if not batch.results_url:
            return BatchProgress(is_over=True, problem="the batch's results are no longer kept")
        results = await self._results(client, batch_id)
        replies, problem = self.replies_in(results.splitlines(), batch_id)
        return BatchProgress(is_over=True, finished=batch.finished, replies=replies, problem=problem)

    async def _results(self, client: AsyncAnthropic, batch_id: str) -> bytes:
        # Not through `batches.results`, which lets a cut connection through as an error of its own, and
        # sends the key to whatever address the answer names.
        with self.provider.as_ours(batch_id), answers_up_to(LIMIT_BYTES):
            body: bytes = await client.get(f"/v1/messages/batches/{batch_id}/results", cast_to=bytes)
        return body

    def result_in(self, line: bytes, about: str) -> tuple[str, Reply | str]:
        """Return what a line of results holds."""
        result = self.provider.read(about, _Result, line)
        outcome = result.result
        if outcome.message:
            return result.custom_id, outcome.message.reply()
        detail = outcome.error.error if outcome.error else None
        why = f"{outcome.type}: {detail.message}" if detail else f"the call was {outcome.type}"
        return result.custom_id, excerpt(why)

    async def _find(
        self, client: AsyncAnthropic, label: str, custom_ids: Collection[str], since: datetime
    ) -> str | None:
        """Look through the newest batches for one of this size; one that is over must hold these ids.

        A single one under way is taken for ours: if it is not, none of its results is, and the calls go live.
        """
        under_way: list[str] = []
        pages = client.messages.batches.with_raw_response.list
        async for batch in self._newest(pages, _Page, since, "after_id"):
            if batch.finished + batch.request_counts.processing != len(custom_ids):
                continue
            if not batch.is_over:
                under_way.append(batch.id)
            elif batch.results_url and await self._holds(client, batch.id, custom_ids):
                return str(batch.id)
        return under_way[0] if len(under_way) == 1 else None

    async def _holds(self, client: AsyncAnthropic, batch_id: str, custom_ids: Collection[str]) -> bool:
        results = await self._results(client, batch_id)
        return any(f'"{name}"'.encode() in results for name in custom_ids)

    async def _cancel(self, client: AsyncAnthropic, batch_id: str) -> None:
        with self.provider.as_ours(batch_id):
            await client.messages.batches.with_raw_response.cancel(batch_id)
