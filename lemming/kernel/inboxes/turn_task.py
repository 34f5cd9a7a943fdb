"""Task of a turn for a request: plain values used in prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from lemming.kernel.base.aliases import accept_old_names
from lemming.kernel.journal.open_requests import OpenRequest, SubRequest
from lemming.kernel.journal.read_cursor import ReadMark
from lemming.kernel.messages import OutboxEntry


@accept_old_names
class RequestOutcome(NamedTuple):
    """Outcome of a sub-request: the asking entry and the answer."""

    sub_request: SubRequest
    entry: OutboxEntry | None
    answer: OutboxEntry | None

    @property
    def answer_payload(self) -> dict[str, Any] | None:
        """The payload of the answer, or the default of a request that expired without an answer."""
        if self.answer is not None:
            return self.answer.payload
        default = self.entry.payload.get("default") if self.entry else None
        if self.sub_request.end != "expired" or default is None:
            return None
        return default if isinstance(default, dict) else {"text": default}


@accept_old_names
class Task(NamedTuple):
    """Task of a turn. `request` is None for a continuation of the agent's own sub-requests.

    `open_request`: progress of the request. `outcomes`: outcomes of the sub-requests. `thread`: earlier
    entries of the same conversation, oldest first. `mark`: the mark after the commit. `path`: the chain of
    agents waiting for the request, each for the next; people are left out.
    """

    request: OutboxEntry | None
    open_request: OpenRequest
    outcomes: Sequence[RequestOutcome]
    thread: Sequence[OutboxEntry]
    mark: ReadMark
    path: Sequence[str] = ()
