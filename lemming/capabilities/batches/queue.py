"""Where the model calls of a tick wait for each other, to go out together through a batch API.

A call waits until no running turn can add another one; then those that wait are sent, a batch for each
provider and model. One of the threads that wait does the work for all. The process may die meanwhile: a
second attempt at the tick waits for the batches that its journal names. A call that its batch did not
answer goes live.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from lemming.capabilities.batches.api import BatchProgress, TakesBatches, with_batches
from lemming.capabilities.batches.records import BatchAnnounced, BatchAwaited, BatchNotSent, BatchSent
from lemming.capabilities.batches.sending import Batch, Call, Post, by_place, custom_id, portions
from lemming.kernel.base.errors import LemmingError
from lemming.kernel.base.jsontext import compact
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.providers import Reply, Request
from lemming.kernel.turn.places import CallsOfTick

NO_BATCHES = (
    'a server at base_url is taken to have no batches ("batches": true in its options says that it has)'
)


class Batches:
    """The batches of one tick. Every method may be called from any thread."""

    def __init__(self, calls: CallsOfTick) -> None:
        records = list(calls.journal.records)
        self._calls, self._stop, self._sends, self._notify = calls, calls.stop, calls.sends, calls.notify
        self._record, self._live = calls.journal.append, calls.live
        self._post = Post(calls)
        self._announced, self._sent = by_place(records, BatchAnnounced), by_place(records, BatchSent)
        self._providers: dict[bytes, TakesBatches | None] = {}
        self._changed = threading.Condition()
        self._running = 0  # turns that have not ended
        self._waiting = 0  # calls that are not settled; a turn has one at most
        self._group: list[Call] = []
        self._open: dict[str, Batch] = {}
        self._over: dict[str, BatchProgress] = {}
        self._looks_in_vain = 0
        self._is_led = False
        self._failure: BaseException | None = None

    def entered(self, turns: int = 1) -> None:
        """Count turns that begin: nothing is sent until each of them asks or ends.

        Turns that begin together are counted together, before the first of them asks.
        """
        with self._changed:
            self._running += turns

    def left(self) -> None:
        """Count a turn that ended. Turns that begin because of it should have `entered` before."""
        with self._changed:
            self._running -= 1
            if self._stop.is_set():
                self._changed.notify_all()
            elif self._has_work():
                self._changed.notify()

    def complete(self, entry: ModelEntry, request: Request) -> Reply:
        """Return the model's answer out of a batch; live when the provider or the batch has none.

        Raises what a live call raises, and `Unavailable` when the engine is to stop: the batch is then left
        to the next attempt.
        """
        place = request.agent, request.step
        may_wait = self._sends or place in self._sent or place in self._announced
        provider = self._provider(entry) if may_wait else None
        if provider is None:
            return self._live(entry, request)
        call = Call(entry, request, provider)
        self._join(call)
        while self._must_lead(call):
            self._lead()
        return call.reply or self._live(entry, request)

    def _provider(self, entry: ModelEntry) -> TakesBatches | None:
        """Return the entry's provider if it takes batches; why one cannot be made, the live call will say."""
        key = compact([entry.provider, entry.options])
        with self._changed:
            if key not in self._providers:
                try:
                    made = with_batches(self._calls.make(entry), entry.provider)
                except LemmingError:
                    return None  # the live call says why
                self._providers[key] = made if made and made.takes_batches else None
                if made and not made.takes_batches and self._sends:
                    self._notify(BatchNotSent(provider=entry.provider, problem=NO_BATCHES))
            return self._providers[key]

    def _join(self, call: Call) -> None:
        agent, step = call.place
        sent = self._sent.get(call.place)
        if sent:
            # In the agent's name: a turn that waits for a batch is not stuck, however often the engine ends.
            self._record(BatchAwaited(agent=agent, call=step, batch=sent.batch))
        with self._changed:
            self._waiting += 1
            if sent:
                self._await([call], sent)
            else:
                call.custom_id = custom_id(call.request)
                self._group.append(call)

    def _await(self, calls: Iterable[Call], sent: BatchSent) -> None:
        """Let calls wait for a batch that was sent. With the lock."""
        for call in calls:
            items = (it for it in sent.items if (it["agent"], it["call"]) == call.place)
            call.custom_id = next(items)["custom_id"]
            if over := self._over.get(sent.batch):
                self._settle([call], over.replies)
            else:
                batch = self._open.setdefault(sent.batch, Batch.from_record(sent, call))
                batch.calls[call.custom_id] = call

    def _settle(self, calls: Iterable[Call], replies: Mapping[str, Reply]) -> None:
        """End the wait of calls. With the lock: their turns are all running again before any asks more."""
        for call in calls:
            reply = replies.get(call.custom_id)
            call.reply, call.is_settled = reply._replace(batched=True) if reply else None, True
            self._waiting -= 1

    # --- one thread leads, the others wait -----------------------------------------------------------

    def _must_lead(self, call: Call) -> bool:
        """Wait; return whether this thread is to do the work that is there. If not, its call is settled."""
        with self._changed:
            self._changed.wait_for(
                lambda: call.is_settled or self._failure or self._stop.is_set() or self._has_work()
            )
            if call.is_settled:
                return False
            if self._failure or self._stop.is_set():
                self._changed.notify_all()
            if self._failure:
                raise self._failure
            self._post.require_going_on()
            self._is_led = True
            return True

    def _has_work(self) -> bool:
        return not self._is_led and bool(self._open or self._is_group_complete())

    def _is_group_complete(self) -> bool:
        return bool(self._group) and self._waiting >= self._running

    def _lead(self) -> None:
        """Send what is to be sent and look at every batch; pause when none is over."""
        try:
            self._send(self._take_group())
            with self._changed:
                batches = list(self._open.values())
            are_over = [self._look(batch) for batch in batches]
            if are_over and not any(are_over):
                # Calls that have come together meanwhile go after it: a minute is little against a batch.
                self._post.pause(self._looks_in_vain)
                self._looks_in_vain += 1
        except BaseException as error:
            self._failure = error
            raise
        finally:
            with self._changed:
                self._is_led = False
                self._changed.notify_all()

    def _take_group(self) -> list[Call]:
        with self._changed:
            if not self._is_group_complete():
                return []
            taken, self._group = self._group, []
            # By place: which thread came first must not decide what goes together.
            return sorted(taken, key=lambda call: call.place)

    def _send(self, calls: list[Call]) -> None:
        groups: dict[bytes, list[Call]] = {}
        for call in self._find_announced(calls):
            groups.setdefault(call.group, []).append(call)
        for group in groups.values():
            for portion in portions(group):
                sent = self._post.send(portion) if self._sends else None
                with self._changed:
                    if sent:
                        self._await(portion, sent)
                        self._looks_in_vain = 0
                    else:
                        self._settle(portion, {})

    def _find_announced(self, calls: list[Call]) -> list[Call]:
        """Let calls wait for batches that an earlier attempt announced and had sent; return the others."""
        asked: dict[str, list[Call]] = {}
        announcements: dict[str, BatchAnnounced] = {}
        for call in calls:
            if announced := self._announced.pop(call.place, None):
                announcements[announced.label] = announced
                asked.setdefault(announced.label, []).append(call)
        found: set[Call] = set()
        for label, mine in asked.items():
            if sent := self._post.find(announcements[label], mine[0]):
                found.update(mine)
                with self._changed:
                    self._await(mine, sent)
        return [call for call in calls if call not in found]

    def _look(self, batch: Batch) -> bool:
        """Look how far a batch is; return whether it is over, with its calls settled."""
        progress = self._post.look(batch)
        if progress.is_over:
            with self._changed:
                del self._open[batch.id]
                self._over[batch.id] = progress
                self._settle(batch.calls.values(), progress.replies)
        return progress.is_over
