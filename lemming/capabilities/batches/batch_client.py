"""Communication with a provider's batch API, and the journal's record of batches.

    batch_announced < the batch is sent < batch_sent < batch_ended

A batch is announced before sending, and the id is recorded immediately after. An announced batch without an
id may have been sent: the next attempt searches for the batch before sending again. Formats: docs/formats.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from hashlib import blake2b
from typing import Any, TypeVar

from lemming.capabilities.batches.batch_api import BatchProgress, BatchProvider
from lemming.capabilities.batches.batch_records import (
    BatchAnnounced,
    BatchEnded,
    BatchItem,
    BatchNotSent,
    BatchSent,
    BatchWaiting,
)
from lemming.ext import ModelEntry
from lemming.kernel.base.clock import parse_timestamp, timestamp
from lemming.kernel.base.errors import AuthenticationFailed, ProviderError, Unavailable
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.journal.journal_records import Record
from lemming.kernel.llm.call_batching import BatchContext
from lemming.kernel.llm.model_call import guard_provider_work, validate_reply
from lemming.kernel.providers import Reply, Request

B = TypeVar("B", BatchAnnounced, BatchSent)
CallKey = tuple[str, int]
"""Key of a call in a tick: the agent, and the number of the call in the turn."""

MAX_BATCH_CALLS = 10_000  # a tenth to a fifth of the providers' limits
MAX_BATCH_BYTES = 100_000_000  # about half of it
FIRST_PAUSE_S = 2.0
MAX_PAUSE_S = 60.0
CANCEL_GRACE = timedelta(minutes=10)


@dataclass(eq=False)
class BatchedCall:
    """A waiting call, until it has a reply or is resolved without a reply and goes live."""

    entry: ModelEntry
    request: Request
    provider: BatchProvider
    custom_id: str = ""
    reply: Reply | None = None
    is_resolved: bool = False

    @property
    def key(self) -> CallKey:
        """Agent and call number."""
        return self.request.agent, self.request.step

    @property
    def batch_key(self) -> bytes:
        """Key shared by the calls of one batch."""
        entry = self.entry
        return dump_compact([entry.provider, entry.options, self.request.model_name, entry.batch_deadline_s])


@dataclass(eq=False)
class SentBatch:
    """A sent batch with the custom ids of all the calls, and the calls that wait for the batch."""

    id: str
    provider: BatchProvider
    custom_ids: frozenset[str]
    deadline: datetime
    calls: dict[str, BatchedCall] = field(default_factory=dict)
    finished: int = -1
    problem: str = ""
    is_cancelled: bool = False

    @classmethod
    def from_record(cls, sent: BatchSent, call: BatchedCall) -> SentBatch:
        """Return the batch of a `batch_sent` record, with the deadline of a call."""
        deadline = parse_timestamp(sent.at) + timedelta(seconds=call.entry.batch_deadline_s)
        return cls(sent.batch, call.provider, frozenset(item["custom_id"] for item in sent.items), deadline)


class BatchSender:
    """Sends batches and polls them."""

    def __init__(self, context: BatchContext) -> None:
        self._record, self._clock, self._notify = context.journal.append, context.clock, context.notify
        self._stop, self._sleep, self._record_batched = context.stop, context.sleep, context.record_batched

    def send_batch(self, calls: list[BatchedCall]) -> BatchSent | None:
        """Send calls as one batch and return the `batch_sent` record, or None if the provider refuses."""
        requests = {call.custom_id: call.request for call in calls}
        announced = self._record_announcement(calls)

        def attempt_send(number: int) -> str:
            # All that was lost of an earlier attempt may be the answer to it.
            batch_id = _find_batch(calls[0], announced) if number else None
            return batch_id or calls[0].provider.send_batch(requests, announced.label)

        return self._record_sent(announced, self._retry(calls[0], attempt_send))

    def find_announced(self, announced: BatchAnnounced, call: BatchedCall) -> BatchSent | None:
        """Return the `batch_sent` record of an announced batch, or None if the batch was not sent."""
        return self._record_sent(announced, self._retry(call, lambda _: _find_batch(call, announced)))

    def fetch_progress(self, batch: SentBatch) -> BatchProgress:
        """Return a batch's progress. A lost or overdue batch counts as finished."""
        try:
            progress = guard_provider_work(lambda: _validate_progress(batch), f"batch {batch.id}")
        except ProviderError as error:
            # A person must repair a missing key, and the results of the batch are paid for.
            is_temporary = error.is_retryable or isinstance(error, AuthenticationFailed)
            progress = BatchProgress(is_over=not is_temporary, problem=str(error))
        if not progress.is_over and self._clock() >= batch.deadline:
            progress = self._cancel_overdue(batch, progress)
        if progress.is_over:
            replies = len(progress.replies)
            counts = {"replies": replies, "live": len(batch.custom_ids) - replies}
            self._record(BatchEnded(batch=batch.id, **counts, problem=progress.problem))
        elif progress.finished > batch.finished or progress.problem != batch.problem:
            batch.finished = max(batch.finished, progress.finished)
            batch.problem = progress.problem
            counts = {"finished": batch.finished, "calls": len(batch.custom_ids)}
            self._notify(BatchWaiting(batch=batch.id, **counts, problem=batch.problem))
        return progress

    def pause(self, count: int) -> None:
        """Wait, longer each time. Raises `Unavailable` when the engine stops."""
        self._sleep(min(MAX_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(count, 10)))
        self.raise_if_stopping()

    def raise_if_stopping(self) -> None:
        """Raise `Unavailable` when the engine stops."""
        if self._stop.is_set():
            raise Unavailable("the batch is left to the next run: the engine is stopping")

    def _record_announcement(self, calls: list[BatchedCall]) -> BatchAnnounced:
        announced = BatchAnnounced(
            label=f"lemming-{_short_digest(sorted(call.custom_id for call in calls))}",
            provider=calls[0].entry.provider,
            model=calls[0].request.model_name,
            at=timestamp(self._clock()),
            items=[BatchItem(custom_id=c.custom_id, agent=c.key[0], call=c.key[1]) for c in calls],
        )
        for call in calls:
            self._record_batched(call.request.agent)
        self._record(announced, sync=True)
        return announced

    def _record_sent(self, announced: BatchAnnounced, batch: str | None) -> BatchSent | None:
        if batch is None:
            return None
        sent = BatchSent(batch=batch, **announced.as_json())
        self._record(sent, sync=True)
        return sent

    def _retry(self, call: BatchedCall, action: Callable[[int], str | None]) -> str | None:
        """Return the provider's answer, with retries if useful, or None after failure."""
        problem = ""
        for attempt in range(call.entry.attempts):
            if attempt:
                self.pause(attempt - 1)
            try:
                return guard_provider_work(partial(action, attempt), f"{call.entry.provider} batches")
            except ProviderError as error:
                problem = str(error)
                if not error.is_retryable:
                    break
        self._notify(BatchNotSent(provider=call.entry.provider, problem=problem))
        return None

    def _cancel_overdue(self, batch: SentBatch, progress: BatchProgress) -> BatchProgress:
        """Cancel an overdue batch, and extend the deadline a little for finished calls."""
        if batch.is_cancelled:
            return replace(progress, is_over=True, problem="not finished within batch_deadline_s")
        batch.is_cancelled, batch.deadline = True, self._clock() + CANCEL_GRACE
        try:
            guard_provider_work(lambda: batch.provider.cancel_batch(batch.id), f"batch {batch.id}")
        except ProviderError as error:
            return replace(progress, problem=str(error))
        return progress


def make_custom_id(request: Request) -> str:
    """Return the custom id of a call: the key, and a digest of the request.

    Format: at most 64 letters, digits, `-` and `_`, accepted by every provider.
    """
    fields = {
        name: value
        for name, value in request._asdict().items()
        # The time limit is not part of the id: a second attempt must compute the same id.
        if name not in ("deadline_s", "turn_s") and (name, value) not in (("extra", None), ("without", ()))
    }
    agent = re.sub("[^A-Za-z0-9_-]", "_", request.agent)[:20]
    return f"{request.tick}-{agent}-{request.step}-{_short_digest(fields)}"


def index_by_call(records: Iterable[Record], record_type: type[B]) -> dict[CallKey, B]:
    """Return the records of one kind by call; the latest record wins."""
    selected = (record for record in records if isinstance(record, record_type))
    return {(item["agent"], item["call"]): record for record in selected for item in record.items}


def split_into_batches(calls: list[BatchedCall]) -> Iterator[list[BatchedCall]]:
    """Yield calls in portions of a size that a provider accepts as one batch."""
    portion: list[BatchedCall] = []
    size = 0
    for call in calls:
        length = len(dump_compact(call.request.messages)) + len(dump_compact(call.request.schema))
        if portion and (len(portion) >= MAX_BATCH_CALLS or size + length > MAX_BATCH_BYTES):
            yield portion
            portion, size = [], 0
        portion.append(call)
        size += length
    if portion:
        yield portion


def _find_batch(call: BatchedCall, announced: BatchAnnounced) -> str | None:
    ids = [item["custom_id"] for item in announced.items]
    return call.provider.find_batch(announced.label, ids, parse_timestamp(announced.at))


def _validate_progress(batch: SentBatch) -> BatchProgress:
    """Return a batch's validated progress. Invalid replies and unknown ids do not affect the other replies."""
    progress = batch.provider.get_batch_progress(batch.id)
    replies: dict[str, Reply] = {}
    problem = progress.problem
    for name, reply in progress.replies.items():
        if name not in batch.custom_ids:
            continue
        try:
            replies[name] = validate_reply(reply)
        except ProviderError as error:
            problem = problem or error.message
    if progress.is_over and not problem and (missing := len(batch.custom_ids) - len(replies)):
        problem = f"{missing} of {len(batch.custom_ids)} answers are missing in the results"
    return replace(progress, replies=replies, problem=problem)


def _short_digest(value: Any) -> str:
    return blake2b(dump_compact(value), digest_size=8).hexdigest()
