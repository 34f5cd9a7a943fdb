"""Queue of a tick's model calls, which are sent together through a batch API.

A call waits until no running turn can add another call; then the waiting calls are sent, one batch for each
provider and model. A single waiting thread works for all. The process may die meanwhile: a second attempt at
the tick waits for the batches in the journal. A call without an answer from the batch goes live.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from lemming.capabilities.batches.batch_api import BatchProgress, BatchProvider, get_batch_provider
from lemming.capabilities.batches.batch_client import (
    BatchedCall,
    BatchSender,
    SentBatch,
    index_by_call,
    make_custom_id,
    split_into_batches,
)
from lemming.capabilities.batches.batch_records import BatchAnnounced, BatchAwaited, BatchNotSent, BatchSent
from lemming.ext import Capability, LemmingError, ModelEntry
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.llm.call_batching import BatchContext
from lemming.kernel.providers import Reply, Request

NO_BATCH_API_MESSAGE = (
    'a server at base_url is assumed to have no batches (set "batches": true in its options if it has)'
)


class BatchQueue:
    """The batches of a tick. Every method may be called from any thread."""

    def __init__(self, context: BatchContext) -> None:
        records = list(context.journal.records)
        self._context, self._stop, self._sends, self._notify = (context, context.stop, context.sends, context.notify)
        self._record, self._live = context.journal.append, context.live
        self._sender = BatchSender(context)
        self._announcements, self._sent = (index_by_call(records, BatchAnnounced), index_by_call(records, BatchSent))
        self._providers: dict[bytes, BatchProvider | None] = {}
        self._changed = threading.Condition()
        self._running = 0  # turns that have not ended
        self._waiting = 0  # calls that are not settled; a turn has one at most
        self._group: list[BatchedCall] = []
        self._open: dict[str, SentBatch] = {}
        self._finished: dict[str, BatchProgress] = {}
        self._fruitless_polls = 0
        self._has_leader = False
        self._failure: BaseException | None = None

    def add_turns(self, turns: int = 1) -> None:
        """Count turns that begin, before their first call: nothing is sent until each makes a call or ends."""
        with self._changed:
            self._running += turns

    def remove_turn(self) -> None:
        """Count a turn that ended. Turns unblocked by the end must have been added before."""
        with self._changed:
            self._running -= 1
            if self._stop.is_set():
                self._changed.notify_all()
            elif self._has_work():
                self._changed.notify()

    def complete(self, entry: ModelEntry, request: Request) -> Reply:
        """Return the model's answer from a batch, or live if the provider or the batch has none.

        Raises the errors of a live call, and `Unavailable` when the engine stops: the batch is then left to
        the next attempt.
        """
        call_key = request.agent, request.step
        may_wait = self._sends or call_key in self._sent or call_key in self._announcements
        provider = self._batch_provider(entry) if may_wait else None
        if provider is None:
            return self._live(entry, request)
        call = BatchedCall(entry, request, provider)
        self._enqueue(call)
        while self._wait_for_work(call):
            self._run_leader()
        return call.reply or self._live(entry, request)

    def _batch_provider(self, entry: ModelEntry) -> BatchProvider | None:
        """Return the entry's batch provider, or None. Errors of the creation surface in the live call."""
        key = dump_compact([entry.provider, entry.options])
        with self._changed:
            if key not in self._providers:
                try:
                    provider = get_batch_provider(self._context.make(entry), entry.provider)
                except LemmingError:
                    return None  # the live call says why
                self._providers[key] = provider if provider and provider.takes_batches else None
                if provider and not provider.takes_batches and self._sends:
                    self._notify(BatchNotSent(provider=entry.provider, problem=NO_BATCH_API_MESSAGE))
            return self._providers[key]

    def _enqueue(self, call: BatchedCall) -> None:
        agent, step = call.key
        sent = self._sent.get(call.key)
        if sent:
            # In the agent's name: a turn that waits for a batch is not stuck, however often the engine ends.
            self._record(BatchAwaited(agent=agent, call=step, batch=sent.batch))
        with self._changed:
            self._waiting += 1
            if sent:
                self._wait_for_batch([call], sent)
            else:
                call.custom_id = make_custom_id(call.request)
                self._group.append(call)

    def _wait_for_batch(self, calls: Iterable[BatchedCall], sent: BatchSent) -> None:
        """Let calls wait for a sent batch. Needs the lock."""
        for call in calls:
            items = (item for item in sent.items if (item["agent"], item["call"]) == call.key)
            call.custom_id = next(items)["custom_id"]
            if progress := self._finished.get(sent.batch):
                self._resolve([call], progress.replies)
            else:
                batch = self._open.setdefault(sent.batch, SentBatch.from_record(sent, call))
                batch.calls[call.custom_id] = call

    def _resolve(self, calls: Iterable[BatchedCall], replies: Mapping[str, Reply]) -> None:
        """End the wait of calls. Needs the lock: all their turns must be running before another call is made."""
        for call in calls:
            reply = replies.get(call.custom_id)
            call.reply, call.is_resolved = reply._replace(batched=True) if reply else None, True
            self._waiting -= 1

    def _wait_for_work(self, call: BatchedCall) -> bool:
        """Wait; return True if this thread must do the pending work, or False if the call is resolved."""
        with self._changed:
            self._changed.wait_for(lambda: call.is_resolved or self._failure or self._stop.is_set() or self._has_work())
            if call.is_resolved:
                return False
            if self._failure or self._stop.is_set():
                self._changed.notify_all()
            if self._failure:
                raise self._failure
            self._sender.raise_if_stopping()
            self._has_leader = True
            return True

    def _has_work(self) -> bool:
        return not self._has_leader and bool(self._open or self._is_group_complete())

    def _is_group_complete(self) -> bool:
        return bool(self._group) and self._waiting >= self._running

    def _run_leader(self) -> None:
        """Send the ready calls and poll every batch; pause if none is finished."""
        try:
            self._send_calls(self._pop_ready_calls())
            with self._changed:
                batches = list(self._open.values())
            finished = [self._poll_batch(batch) for batch in batches]
            if finished and not any(finished):
                # Calls that have come together meanwhile go after it: a minute is little against a batch.
                self._sender.pause(self._fruitless_polls)
                self._fruitless_polls += 1
        except BaseException as error:
            self._failure = error
            raise
        finally:
            with self._changed:
                self._has_leader = False
                self._changed.notify_all()

    def _pop_ready_calls(self) -> list[BatchedCall]:
        with self._changed:
            if not self._is_group_complete():
                return []
            ready, self._group = self._group, []
            # Sorted by position: the grouping must not depend on the order of threads.
            return sorted(ready, key=lambda call: call.key)

    def _send_calls(self, calls: list[BatchedCall]) -> None:
        groups: dict[bytes, list[BatchedCall]] = {}
        for call in self._find_announced(calls):
            groups.setdefault(call.batch_key, []).append(call)
        for group in groups.values():
            for portion in split_into_batches(group):
                sent = self._sender.send_batch(portion) if self._sends else None
                with self._changed:
                    if sent:
                        self._wait_for_batch(portion, sent)
                        self._fruitless_polls = 0
                    else:
                        self._resolve(portion, {})

    def _find_announced(self, calls: list[BatchedCall]) -> list[BatchedCall]:
        """Let calls wait for batches that an earlier attempt announced and sent; return the other calls."""
        calls_by_label: dict[str, list[BatchedCall]] = {}
        announcements: dict[str, BatchAnnounced] = {}
        for call in calls:
            if announced := self._announcements.pop(call.key, None):
                announcements[announced.label] = announced
                calls_by_label.setdefault(announced.label, []).append(call)
        matched: set[BatchedCall] = set()
        for label, group in calls_by_label.items():
            if sent := self._sender.find_announced(announcements[label], group[0]):
                matched.update(group)
                with self._changed:
                    self._wait_for_batch(group, sent)
        return [call for call in calls if call not in matched]

    def _poll_batch(self, batch: SentBatch) -> bool:
        """Poll a batch; return True if the batch is finished and the calls are resolved."""
        progress = self._sender.fetch_progress(batch)
        if progress.is_over:
            with self._changed:
                del self._open[batch.id]
                self._finished[batch.id] = progress
                self._resolve(batch.calls.values(), progress.replies)
        return progress.is_over


class BatchesCapability(Capability):
    """Batches in a run that sends batches, and in the next run after an interruption."""

    name = "batches"
