"""The lines of an OpenAI batch and what is read of its answers. Pure: no connection, no SDK."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from lemming.base.errors import ProviderError
from lemming.base.jsontext import compact
from lemming.base.redaction import excerpt
from lemming.llm.batch.api import CLOCKS_DIFFER_BY, BatchProgress
from lemming.providers import Reply

LABEL = "lemming"
"""The key of a batch's metadata that holds its label."""

_UNDER_WAY = {"validating", "in_progress", "finalizing", "cancelling"}


@dataclass(frozen=True)
class File:
    """An uploaded file."""

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
class Batch:
    """A batch, as far as it is read."""

    id: str
    status: str
    created_at: float = 0
    output_file_id: str | None = None
    error_file_id: str | None = None
    request_counts: _Counts | None = None
    metadata: dict[str, str] | None = None
    errors: _Problems | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come of it: completed, failed, expired or cancelled."""
        return self.status not in _UNDER_WAY

    @property
    def finished(self) -> int:
        """How many calls are finished, well or badly."""
        counts = self.request_counts or _Counts()
        return counts.completed + counts.failed

    @property
    def result_files(self) -> list[str]:
        """The files with what came of the calls; both, one or none are there."""
        return [file for file in (self.output_file_id, self.error_file_id) if file]

    @property
    def label(self) -> str:
        """The label it was sent under; empty when it is somebody else's."""
        return (self.metadata or {}).get(LABEL, "")

    @property
    def problem(self) -> str:
        """Why all of it failed; empty when it did not."""
        problems = self.errors.data if self.errors and self.errors.data else []
        if problems:
            return excerpt(problems[0].message or "no details")
        return "" if self.status == "completed" else f"the batch was {self.status}"

    def is_older_than(self, moment: datetime) -> bool:
        """Whether it was made before that, as far as two clocks can tell."""
        return self.created_at < (moment - CLOCKS_DIFFER_BY).timestamp()


@dataclass(frozen=True)
class Page:
    """A part of the list of batches."""

    data: list[Batch] = field(default_factory=list)
    has_more: bool = False


@dataclass(frozen=True)
class _Answered:
    status_code: int
    request_id: str | None = None
    body: Any = None


@dataclass(frozen=True)
class _Result:
    custom_id: str
    response: _Answered | None = None
    error: _Problem | None = None


def lines_of(bodies: Mapping[str, dict[str, Any]], path: str) -> bytes:
    """Return the file that a batch is started from: a request a line, by custom id."""
    return b"".join(
        compact({"custom_id": name, "method": "POST", "url": path, "body": body}) + b"\n"
        for name, body in bodies.items()
    )


def progress_of(
    batch: Batch,
    files: Iterable[bytes],
    read: Callable[[str, type[Any], bytes], Any],
    reply_of: Callable[[bytes, str | None, str], Reply],
) -> BatchProgress:
    """Return what came of a batch that is over. A line that is not an answer has no reply, and is no reason
    to lose the others."""
    replies: dict[str, Reply] = {}
    problem = batch.problem
    for line in b"\n".join(files).splitlines():
        if not line.strip():
            continue
        try:
            result: _Result = read(batch.id, _Result, line)
            answered = result.response
            if answered and answered.status_code == 200:
                replies[result.custom_id] = reply_of(compact(answered.body), answered.request_id, "")
                continue
            problem = problem or _why(result)
        except ProviderError as error:
            problem = problem or error.message
    return BatchProgress(is_over=True, finished=batch.finished, replies=replies, problem=problem)


def _why(result: _Result) -> str:
    if result.error and result.error.message:
        return excerpt(result.error.message)
    body = result.response.body if result.response else None
    inner = body.get("error") if isinstance(body, dict) else None
    message = inner.get("message") if isinstance(inner, dict) else None
    status = f"HTTP {result.response.status_code}" if result.response else "no answer"
    return excerpt(f"{status}: {message or 'no details'}")
