"""OpenAI's batches: a file of calls, one a line, and files of results."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lemming.capabilities.batches.batch_api import CLOCK_TOLERANCE, LIMIT_BYTES, BatchApi, BatchProgress
from lemming.capabilities.hosted_models.bounded_response import allow_response_size
from lemming.capabilities.hosted_models.openai_provider import OpenAIProvider
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.base.redaction.secrets import redacted_excerpt
from lemming.kernel.providers import Reply

if TYPE_CHECKING:
    from openai import AsyncOpenAI

LABEL_KEY = "lemming"
"""The key of a batch's metadata that holds its label."""
_UNFINISHED_STATES = {"validating", "in_progress", "finalizing", "cancelling"}


@dataclass(frozen=True)
class _UploadedFile:
    id: str


@dataclass(frozen=True)
class _RequestCounts:
    completed: int = 0
    failed: int = 0


@dataclass(frozen=True)
class _BatchError:
    message: str | None = None


@dataclass(frozen=True)
class _BatchErrors:
    data: list[_BatchError] | None = None


@dataclass(frozen=True)
class _BatchResponse:
    """A batch with the fields that are used. The SDK's own type has every field and validates none."""

    id: str
    status: str
    created_at: float = 0
    output_file_id: str | None = None
    error_file_id: str | None = None
    request_counts: _RequestCounts | None = None
    metadata: dict[str, str] | None = None
    errors: _BatchErrors | None = None

    @property
    def finished_count(self) -> int:
        counts = self.request_counts or _RequestCounts()
        return counts.completed + counts.failed

    @property
    def error_message(self) -> str:
        if problems := (self.errors.data if self.errors else None):
            return redacted_excerpt(problems[0].message or "no details")
        return "" if self.status == "completed" else f"the batch was {self.status}"

    def is_older_than(self, time: datetime) -> bool:
        return self.created_at < (time - CLOCK_TOLERANCE).timestamp()


@dataclass(frozen=True)
class _BatchPage:
    data: list[_BatchResponse] = field(default_factory=list)
    has_more: bool = False


@dataclass(frozen=True)
class _ResponseBody:
    status_code: int
    request_id: str | None = None
    body: Any = None


@dataclass(frozen=True)
class _ResultLine:
    custom_id: str
    response: _ResponseBody | None = None
    error: _BatchError | None = None


class OpenAIBatchApi(BatchApi[OpenAIProvider]):
    """Batch API of OpenAI, which stores a label with each batch."""

    async def _send_batch(self, client: AsyncOpenAI, bodies: Mapping[str, dict[str, Any]], label: str) -> str:
        path = "/v1/chat/completions" if self.provider.api == "chat" else "/v1/responses"
        lines = b"".join(
            dump_compact({"custom_id": name, "method": "POST", "url": path, "body": body}) + b"\n"
            for name, body in bodies.items()
        )
        with self.provider.wrap_sdk_errors("batches"):
            upload: Any = client.files.with_raw_response.create
            uploaded = await upload(file=("lemming.jsonl", lines), purpose="batch")
            file = self.provider.parse_body("batches", _UploadedFile, uploaded.content)
            create: Any = client.batches.with_raw_response.create
            created = await create(
                input_file_id=file.id, endpoint=path, completion_window="24h", metadata={LABEL_KEY: label}
            )
        return self.provider.parse_body("batches", _BatchResponse, created.content).id

    async def _fetch_progress(self, client: AsyncOpenAI, batch_id: str) -> BatchProgress:
        with self.provider.wrap_sdk_errors(batch_id):
            response = await client.batches.with_raw_response.retrieve(batch_id)
            batch = self.provider.parse_body(batch_id, _BatchResponse, response.content)
            if batch.status in _UNFINISHED_STATES:
                return BatchProgress(is_over=False, finished=batch.finished_count)
            files = filter(None, (batch.output_file_id, batch.error_file_id))  # both, one or none
            with allow_response_size(LIMIT_BYTES):
                lines = [line for file in files for line in (await client.files.content(file)).content.splitlines()]
        replies, problem = self.parse_replies(lines, batch_id)
        return BatchProgress(
            is_over=True, finished=batch.finished_count, replies=replies, problem=batch.error_message or problem
        )

    def parse_result(self, line: bytes, batch_id: str) -> tuple[str, Reply | str]:
        """Return the custom id and the reply, or the problem, in a line of results."""
        result = self.provider.parse_body(batch_id, _ResultLine, line)
        response = result.response
        if response and response.status_code == 200:
            reply = self.provider.parse_reply(dump_compact(response.body), response.request_id, "")
            return result.custom_id, reply
        if result.error and result.error.message:
            return result.custom_id, redacted_excerpt(result.error.message)
        inner = response.body.get("error") if response and isinstance(response.body, dict) else None
        message = inner.get("message") if isinstance(inner, dict) else None
        status = f"HTTP {response.status_code}" if response else "no answer"
        return result.custom_id, redacted_excerpt(f"{status}: {message or 'no details'}")

    async def _find_batch(
        self, client: AsyncOpenAI, label: str, custom_ids: Collection[str], since: datetime
    ) -> str | None:
        pages = client.batches.with_raw_response.list
        async for batch in self._iter_newest(pages, _BatchPage, since, "after"):
            if (batch.metadata or {}).get(LABEL_KEY) == label:
                return str(batch.id)
        return None

    async def _cancel_batch(self, client: AsyncOpenAI, batch_id: str) -> None:
        with self.provider.wrap_sdk_errors(batch_id):
            await client.batches.with_raw_response.cancel(batch_id)
