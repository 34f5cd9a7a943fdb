"""Anthropic's batches, which have no label and reveal their calls only when finished."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lemming.capabilities.batches.batch_api import CLOCK_TOLERANCE, LIMIT_BYTES, BatchApi, BatchProgress
from lemming.capabilities.hosted_models.anthropic_provider import AnthropicMessage, AnthropicProvider
from lemming.capabilities.hosted_models.bounded_response import allow_response_size
from lemming.kernel.base.redaction.secrets import redacted_excerpt
from lemming.kernel.providers import Reply

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic


@dataclass(frozen=True)
class _RequestCounts:
    processing: int = 0
    succeeded: int = 0
    errored: int = 0
    canceled: int = 0
    expired: int = 0


@dataclass(frozen=True)
class _BatchResponse:
    """A batch with the fields that are used. The SDK's own type has every field and validates none."""

    id: str
    processing_status: str
    created_at: datetime
    results_url: str | None = None
    request_counts: _RequestCounts = field(default_factory=_RequestCounts)

    @property
    def is_finished(self) -> bool:
        return self.processing_status == "ended"

    @property
    def finished_count(self) -> int:
        """Number of finished calls, successful or failed. This API counts them only at the end."""
        counts = self.request_counts
        return counts.succeeded + counts.errored + counts.canceled + counts.expired

    def is_older_than(self, time: datetime) -> bool:
        return self.created_at < time - CLOCK_TOLERANCE


@dataclass(frozen=True)
class _BatchPage:
    data: list[_BatchResponse] = field(default_factory=list)
    has_more: bool = False


@dataclass(frozen=True)
class _ErrorDetail:
    message: str = "no details"


@dataclass(frozen=True)
class _ErrorBody:
    error: _ErrorDetail | None = None


@dataclass(frozen=True)
class _ResultBody:
    type: str
    message: AnthropicMessage | None = None
    error: _ErrorBody | None = None


@dataclass(frozen=True)
class _ResultLine:
    custom_id: str
    result: _ResultBody


class AnthropicBatchApi(BatchApi[AnthropicProvider]):
    """Message Batches API of Anthropic."""

    async def _send_batch(self, client: AsyncAnthropic, bodies: Mapping[str, dict[str, Any]], label: str) -> str:
        """Send the calls. The API has no place for the label."""
        calls = [{"custom_id": name, "params": body} for name, body in bodies.items()]
        create: Any = client.messages.batches.with_raw_response.create
        with self.provider.wrap_sdk_errors("batches"):
            response = await create(requests=calls)
            body = await response.read()
        return self.provider.parse_body("batches", _BatchResponse, body).id

    async def _fetch_progress(self, client: AsyncAnthropic, batch_id: str) -> BatchProgress:
        with self.provider.wrap_sdk_errors(batch_id):
            response: Any = await client.messages.batches.with_raw_response.retrieve(batch_id)
            batch = self.provider.parse_body(batch_id, _BatchResponse, await response.read())
        if not batch.is_finished:
            return BatchProgress(is_over=False, finished=batch.finished_count)
        if not batch.results_url:
            return BatchProgress(is_over=True, problem="the batch's results are no longer kept")
        results = await self._fetch_results(client, batch_id)
        replies, problem = self.parse_replies(results.splitlines(), batch_id)
        return BatchProgress(is_over=True, finished=batch.finished_count, replies=replies, problem=problem)

    async def _fetch_results(self, client: AsyncAnthropic, batch_id: str) -> bytes:
        # Not through `batches.results`, which lets a cut connection through as an error of its own, and
        # sends the key to whatever address the answer names.
        with self.provider.wrap_sdk_errors(batch_id), allow_response_size(LIMIT_BYTES):
            body: bytes = await client.get(f"/v1/messages/batches/{batch_id}/results", cast_to=bytes)
        return body

    def parse_result(self, line: bytes, batch_id: str) -> tuple[str, Reply | str]:
        """Return the custom id and the reply, or the problem, in a line of results."""
        result = self.provider.parse_body(batch_id, _ResultLine, line)
        outcome = result.result
        if outcome.message:
            return result.custom_id, outcome.message.to_reply()
        detail = outcome.error.error if outcome.error else None
        problem = f"{outcome.type}: {detail.message}" if detail else f"the call was {outcome.type}"
        return result.custom_id, redacted_excerpt(problem)

    async def _find_batch(
        self, client: AsyncAnthropic, label: str, custom_ids: Collection[str], since: datetime
    ) -> str | None:
        """Find a batch of this size among the newest ones. A finished batch must contain these ids.

        A single unfinished batch is assumed to be ours: if not, none of the results match and the calls go live.
        """
        unfinished: list[str] = []
        pages = client.messages.batches.with_raw_response.list
        async for batch in self._iter_newest(pages, _BatchPage, since, "after_id"):
            if batch.finished_count + batch.request_counts.processing != len(custom_ids):
                continue
            if not batch.is_finished:
                unfinished.append(batch.id)
            elif batch.results_url and await self._has_custom_ids(client, batch.id, custom_ids):
                return str(batch.id)
        return unfinished[0] if len(unfinished) == 1 else None

    async def _has_custom_ids(self, client: AsyncAnthropic, batch_id: str, custom_ids: Collection[str]) -> bool:
        results = await self._fetch_results(client, batch_id)
        return any(f'"{name}"'.encode() in results for name in custom_ids)

    async def _cancel_batch(self, client: AsyncAnthropic, batch_id: str) -> None:
        with self.provider.wrap_sdk_errors(batch_id):
            await client.messages.batches.with_raw_response.cancel(batch_id)
