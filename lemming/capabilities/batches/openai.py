"""OpenAI's batches: a file of calls, a line each, and files of results."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lemming.capabilities.batches.api import CLOCKS_DIFFER_BY, LIMIT_BYTES, BatchApi, BatchProgress
from lemming.capabilities.hosted.bounded import answers_up_to
from lemming.capabilities.hosted.openai import OpenAIProvider
from lemming.kernel.base.jsontext import compact
from lemming.kernel.base.redaction.secrets import excerpt
from lemming.kernel.providers import Reply

if TYPE_CHECKING:
    from openai import AsyncOpenAI

LABEL = "lemming"
"""The key of a batch's metadata that holds its label."""
_UNDER_WAY = {"validating", "in_progress", "finalizing", "cancelling"}


@dataclass(frozen=True)
class _File:
    id: str


@dataclass(frozen=True)
class _Counts:
    completed: int = 0
    failed: int = 0


@dataclass(frozen=True)
class _Problem:
    message: str | None = None


@dataclass(frozen=True)
class _Problems:
    data: list[_Problem] | None = None


@dataclass(frozen=True)
class _Batch:
    """A batch, as far as it is read. The SDK's own type has every field, and checks none."""

    id: str
    status: str
    created_at: float = 0
    output_file_id: str | None = None
    error_file_id: str | None = None
    request_counts: _Counts | None = None
    metadata: dict[str, str] | None = None
    errors: _Problems | None = None

    @property
    def finished(self) -> int:
        counts = self.request_counts or _Counts()
        return counts.completed + counts.failed

    @property
    def problem(self) -> str:
        if problems := (self.errors.data if self.errors else None):
            return excerpt(problems[0].message or "no details")
        return "" if self.status == "completed" else f"the batch was {self.status}"

    def is_older_than(self, moment: datetime) -> bool:
        return self.created_at < (moment - CLOCKS_DIFFER_BY).timestamp()


@dataclass(frozen=True)
class _Page:
    data: list[_Batch] = field(default_factory=list)
    has_more: bool = False


@dataclass(frozen=True)
class _Response:
    status_code: int
    request_id: str | None = None
    body: Any = None


@dataclass(frozen=True)
class _Result:
    custom_id: str
    response: _Response | None = None
    error: _Problem | None = None


class OpenAIBatches(BatchApi[OpenAIProvider]):
    """The batches of OpenAI, which keeps a label with each."""

    async def _send(self, client: AsyncOpenAI, bodies: Mapping[str, dict[str, Any]], label: str) -> str:
        path = "/v1/chat/completions" if self.provider.api == "chat" else "/v1/responses"
        lines = b"".join(
            compact({"custom_id": name, "method": "POST", "url": path, "body": body}) + b"\n"
            for name, body in bodies.items()
        )
        with self.provider.as_ours("batches"):
            upload: Any = client.files.with_raw_response.create
            uploaded = await upload(file=("lemming.jsonl", lines), purpose="batch")
            file = self.provider.read("batches", _File, uploaded.content)
            create: Any = client.batches.with_raw_response.create
            created = await create(
                input_file_id=file.id, endpoint=path, completion_window="24h", metadata={LABEL: label}
            )
        return self.provider.read("batches", _Batch, created.content).id

    async def _look(self, client: AsyncOpenAI, batch_id: str) -> BatchProgress:
        with self.provider.as_ours(batch_id):
            response = await client.batches.with_raw_response.retrieve(batch_id)
            batch = self.provider.read(batch_id, _Batch, response.content)
            if batch.status in _UNDER_WAY:
                return BatchProgress(is_over=False, finished=batch.finished)
            files = filter(None, (batch.output_file_id, batch.error_file_id))  # both, one or none
            with answers_up_to(LIMIT_BYTES):
                lines = [
                    line for file in files for line in (await client.files.content(file)).content.splitlines()
                ]
        replies, problem = self.replies_in(lines, batch_id)
        return BatchProgress(
            is_over=True, finished=batch.finished, replies=replies, problem=batch.problem or problem
        )

    def result_in(self, line: bytes, about: str) -> tuple[str, Reply | str]:
        """Return what a line of results holds."""
        result = self.provider.read(about, _Result, line)
        answered = result.response
        if answered and answered.status_code == 200:
            reply = self.provider.reply(compact(answered.body), answered.request_id, "")
            return result.custom_id, reply
        if result.error and result.error.message:
            return result.custom_id, excerpt(result.error.message)
        inner = answered.body.get("error") if answered and isinstance(answered.body, dict) else None
        message = inner.get("message") if isinstance(inner, dict) else None
        status = f"HTTP {answered.status_code}" if answered else "no answer"
        return result.custom_id, excerpt(f"{status}: {message or 'no details'}")

    async def _find(
        self, client: AsyncOpenAI, label: str, custom_ids: Collection[str], since: datetime
    ) -> str | None:
        pages = client.batches.with_raw_response.list
        async for batch in self._newest(pages, _Page, since, "after"):
            if (batch.metadata or {}).get(LABEL) == label:
                return str(batch.id)
        return None

    async def _cancel(self, client: AsyncOpenAI, batch_id: str) -> None:
        with self.provider.as_ours(batch_id):
            await client.batches.with_raw_response.cancel(batch_id)
