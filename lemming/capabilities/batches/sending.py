"""What goes to a provider's batch API and comes back, and the journal's record of it.

    batch_announced < the batch is sent < batch_sent < batch_ended

A batch is announced before it is sent, and its id is recorded the moment it is known. One that was announced
and has no id may have been sent: it is looked for before anything is sent again. Formats: docs/formats.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from hashlib import blake2b
from typing import Any, TypeVar

from lemming.capabilities.batches.api import BatchProgress, TakesBatches
from lemming.capabilities.batches.records import (
    BatchAnnounced,
    BatchEnded,
    BatchNotSent,
    BatchSent,
    BatchWaiting,
    Item,
)
from lemming.kernel.base.clock import parse_timestamp, timestamp
from lemming.kernel.base.errors import AuthenticationFailed, ProviderError, Unavailable
from lemming.kernel.base.jsontext import compact
from lemming.kernel.journal.records import Record
from lemming.kernel.llm.calls import checked, guarded
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.providers import Reply, Request
from lemming.kernel.turn.places import CallsOfTick

B = TypeVar("B", BatchAnnounced, BatchSent)
Place = tuple[str, int]
"""Which call of a tick: the agent, and the number of the call in its turn."""

CALLS_A_BATCH = 10_000  # a tenth to a fifth of what the providers take
BYTES_A_BATCH = 100_000_000  # about half of it
FIRST_PAUSE_S = 2.0
LONGEST_PAUSE_S = 60.0
CANCELLING_TAKES = timedelta(minutes=10)


@dataclass(eq=False)
class Call:
    """A call that waits: until it has a reply, or is settled without one and goes live."""

    entry: ModelEntry
    request: Request
    provider: TakesBatches
    custom_id: str = ""
    reply: Reply | None = None
    is_settled: bool = False

    @property
    def place(self) -> Place:
        """Which call of the tick it is."""
        return self.request.agent, self.request.step

    @property
    def group(self) -> bytes:
        """What the calls of one batch have in common."""
        entry = self.entry
        return compact([entry.provider, entry.options, self.request.model_name, entry.batch_deadline_s])


@dataclass(eq=False)
class Batch:
    """A batch that was sent, the custom ids that it `holds`, and the calls that wait for it by theirs."""

    id: str
    provider: TakesBatches
    holds: frozenset[str]
    ends: datetime
    calls: dict[str, Call] = field(default_factory=dict)
    finished: int = -1
    problem: str = ""
    is_cancelled: bool = False

    @classmethod
    def from_record(cls, sent: BatchSent, call: Call) -> Batch:
        """Return the batch of a `batch_sent`, as one of its calls wants it."""
        ends = parse_timestamp(sent.at) + timedelta(seconds=call.entry.batch_deadline_s)
        return cls(sent.batch, call.provider, frozenset(item["custom_id"] for item in sent.items), ends)


class Post:
    """Sends batches and looks at them."""

    def __init__(self, calls: CallsOfTick) -> None:
        self._record, self._now, self._notify = calls.journal.append, calls.now, calls.notify
        self._stop, self._sleep = calls.stop, calls.sleep

    def send(self, calls: list[Call]) -> BatchSent | None:
        """Send calls as one batch and return its `batch_sent`; None when the provider does not take it."""
        requests = {call.custom_id: call.request for call in calls}
        announced = self._announce(calls)

        def attempt(number: int) -> str:
            # All that was lost of an earlier attempt may be the answer to it.
            found = _find(calls[0], announced) if number else None
            return found or calls[0].provider.send_batch(requests, announced.label)

        return self._sent(announced, self._insist(calls[0], attempt))

    def find(self, announced: BatchAnnounced, call: Call) -> BatchSent | None:
        """Return the `batch_sent` of a batch that an earlier attempt announced; None when it was not sent."""
        return self._sent(announced, self._insist(call, lambda _: _find(call, announced)))

    def look(self, batch: Batch) -> BatchProgress:
        """Return how far a batch is; over, too, is one that is gone or whose time is up."""
        try:
            progress = guarded(lambda: _checked_progress(batch), f"batch {batch.id}")
        except ProviderError as error:
            # A missing key is a person's to mend, and what the batch has come to is paid for.
            may_pass = error.is_retryable or isinstance(error, AuthenticationFailed)
            progress = BatchProgress(is_over=not may_pass, problem=str(error))
        if not progress.is_over and self._now() >= batch.ends:
            progress = self._end_early(batch, progress)
        if progress.is_over:
            replies = len(progress.replies)
            counts = {"replies": replies, "live": len(batch.holds) - replies}
            self._record(BatchEnded(batch=batch.id, **counts, problem=progress.problem))
        elif progress.finished > batch.finished or progress.problem != batch.problem:
            batch.finished = max(batch.finished, progress.finished)
            batch.problem = progress.problem
            counts = {"finished": batch.finished, "calls": len(batch.holds)}
            self._notify(BatchWaiting(batch=batch.id, **counts, problem=batch.problem))
        return progress

    def pause(self, earlier: int) -> None:
        """Wait, longer from time to time; raise `Unavailable` when the engine is to stop."""
        self._sleep(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(earlier, 10)))
        self.require_going_on()

    def require_going_on(self) -> None:
        """Raise `Unavailable` when the engine is to stop."""
        if self._stop.is_set():
            raise Unavailable("the batch is left to the next run: the engine is stopping")

    def _announce(self, calls: list[Call]) -> BatchAnnounced:
        announced = BatchAnnounced(
            label=f"lemming-{_digest(sorted(call.custom_id for call in calls))}",
            provider=calls[0].entry.provider,
            model=calls[0].request.model_name,
            at=timestamp(self._now()),
            items=[Item(custom_id=c.custom_id, agent=c.place[0], call=c.place[1]) for c in calls],
        )
        self._record(announced, sync=True)
        return announced

    def _sent(self, announced: BatchAnnounced, batch: str | None) -> BatchSent | None:
        if batch is None:
            return None
        sent = BatchSent(batch=batch, **announced.as_json())
        self._record(sent, sync=True)
        return sent

    def _insist(self, call: Call, work: Callable[[int], str | None]) -> str | None:
        """Return what a provider gives, asked again where that may help; None when that does not help."""
        problem = ""
        for attempt in range(call.entry.attempts):
            if attempt:
                self.pause(attempt - 1)
            try:
                return guarded(partial(work, attempt), f"{call.entry.provider} batches")
            except ProviderError as error:
                problem = str(error)
                if not error.is_retryable:
                    break
        self._notify(BatchNotSent(provider=call.entry.provider, problem=problem))
        return None

    def _end_early(self, batch: Batch, progress: BatchProgress) -> BatchProgress:
        """Cancel a batch whose time is up, and give it a little more for what it has finished."""
        if batch.is_cancelled:
            return replace(progress, is_over=True, problem="not finished within batch_deadline_s")
        batch.is_cancelled, batch.ends = True, self._now() + CANCELLING_TAKES
        try:
            guarded(lambda: batch.provider.cancel_batch(batch.id), f"batch {batch.id}")
        except ProviderError as error:
            return replace(progress, problem=str(error))
        return progress


def custom_id(request: Request) -> str:
    """Return what names a call in its batch: its place, and a digest of all that it asks.

    Format: at most 64 letters, digits, `-` and `_`, which is what every provider takes.
    """
    asked = {
        name: value
        for name, value in request._asdict().items()
        # How long it may take is no part of what is asked: a second attempt must come to the same id.
        if name not in ("deadline_s", "turn_s") and (name, value) not in (("extra", None), ("without", ()))
    }
    agent = re.sub("[^A-Za-z0-9_-]", "_", request.agent)[:20]
    return f"{request.tick}-{agent}-{request.step}-{_digest(asked)}"


def by_place(records: Iterable[Record], kind: type[B]) -> dict[Place, B]:
    """Return the records of one kind by the calls they are about; the latest counts."""
    return {
        (item["agent"], item["call"]): record
        for record in records
        if isinstance(record, kind)
        for item in record.items
    }


def portions(calls: list[Call]) -> Iterator[list[Call]]:
    """Yield calls in portions that a provider takes as one batch."""
    portion: list[Call] = []
    size = 0
    for call in calls:
        length = len(compact(call.request.messages)) + len(compact(call.request.schema))
        if portion and (len(portion) >= CALLS_A_BATCH or size + length > BYTES_A_BATCH):
            yield portion
            portion, size = [], 0
        portion.append(call)
        size += length
    if portion:
        yield portion


def _find(call: Call, announced: BatchAnnounced) -> str | None:
    ids = [item["custom_id"] for item in announced.items]
    return call.provider.find_batch(announced.label, ids, parse_timestamp(announced.at))


def _checked_progress(batch: Batch) -> BatchProgress:
    """Return how far a batch is. What is no reply, or to no call of it, is no reason to lose the others."""
    progress = batch.provider.look_at_batch(batch.id)
    replies: dict[str, Reply] = {}
    problem = progress.problem
    for name, reply in progress.replies.items():
        if name not in batch.holds:
            continue
        try:
            replies[name] = checked(reply)
        except ProviderError as error:
            problem = problem or error.message
    if progress.is_over and not problem and (missing := len(batch.holds) - len(replies)):
        problem = f"{missing} of {len(batch.holds)} answers are missing in the results"
    return replace(progress, replies=replies, problem=problem)


def _digest(value: Any) -> str:
    return blake2b(compact(value), digest_size=8).hexdigest()
