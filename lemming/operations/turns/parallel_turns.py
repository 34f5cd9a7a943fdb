"""Run turns concurrently, each after its dependencies: one turn works, the others wait for answers."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import NamedTuple

from lemming.kernel.llm.call_batching import CallBatcher
from lemming.kernel.tick.turn_threads import TurnLock, get_pool
from lemming.operations.turns.lanes import Item, Lane, ReadyTurns
from lemming.operations.turns.turn_dependencies import TurnWaits


class ConcurrentTurns(NamedTuple):
    """Turns to run concurrently in any order, and a final step after all of them."""

    turns: Sequence[Callable[[], None]]
    finish: Callable[[], None]


Work = Callable[[str], ConcurrentTurns | None]
INTERRUPT_DELAY_S = 0.5
"""Longest delay of a Ctrl-C that came just before the main thread began to wait."""


def run_turns(
    order: list[str],
    waits: dict[str, TurnWaits],
    work: Work,
    *,
    max_parallel: int,
    get_lane: Callable[[str], Lane] | None = None,
    turn_lock: TurnLock,
    stop: threading.Event,
    batcher: CallBatcher | None = None,
    finished_agents: FinishedAgents | None = None,
) -> None:
    """Call `work(name)` for every name, each after the turns listed in `waits`.

    At most `max_parallel` calls run concurrently; with `get_lane`, up to the capacity of each lane, unless
    `max_parallel` is 1. A returned group holds further turns to run concurrently and a final step; the name is
    complete after the group. One call works at a time, the holder of `turn_lock`; the other calls are in
    `turn_lock.waiting`. Ready turns start in the given order. An exception sets `stop`, so running calls end
    soon; no further call starts, and the exception is raised after the last call. `finished_agents` learns which names
    are complete.
    """
    try:
        if max_parallel == 1:
            with turn_lock:
                for name in order:
                    if group := work(name):
                        for turn in group.turns:
                            turn()
                        group.finish()
        else:
            ready = ReadyTurns(order, get_lane or (lambda _: Lane("", max_parallel)))
            _ConcurrentRun(order, waits, work, ready, turn_lock, stop, batcher, finished_agents).run()
    except BaseException:
        stop.set()
        raise


@dataclass
class _UnfinishedGroup:
    """A group of turns with the number of unfinished turns."""

    group: ConcurrentTurns
    count: int


class _ConcurrentRun:
    """Progress of a `run_turns`. Only the holder of the turn lock accesses the fields.

    A thread takes the next turn itself when its turn is over, without a thread switch.
    """

    def __init__(
        self,
        order: list[str],
        waits: dict[str, TurnWaits],
        work: Work,
        ready: ReadyTurns,
        turn_lock: TurnLock,
        stop: threading.Event,
        batcher: CallBatcher | None,
        finished_agents: FinishedAgents | None,
    ) -> None:
        self._order, self._call, self._ready = order, work, ready
        self._turn_lock, self._stop, self._batcher, self._finished_agents = turn_lock, stop, batcher, finished_agents
        self._rank = {name: rank for rank, name in enumerate(order)}
        without_barrier = [name for name in order if not waits[name].everyone]
        self._unmet = {name: len(waits[name].names) + len(waits[name].begun) for name in without_barrier}
        self._dependents: dict[str, list[str]] = {}
        self._followers: dict[str, list[str]] = {}  # which may begin once the turn has begun
        for name in without_barrier:
            for other in waits[name].names:
                self._dependents.setdefault(other, []).append(name)
            for other in waits[name].begun:
                self._followers.setdefault(other, []).append(name)
        self._barriers = [name for name in reversed(order) if waits[name].everyone]
        self._groups: dict[str, _UnfinishedGroup] = {}
        self._finished: set[str] = set()
        self._finished_prefix = 0  # number of finished turns at the front of the order
        self._running = 0  # turns with a thread, or waiting for one
        self._idle_signal: SimpleQueue[None] = SimpleQueue()  # unlike a semaphore, consistent after Ctrl-C
        self._error: BaseException | None = None
        for name in without_barrier:
            if not self._unmet[name]:
                self._make_ready(name)
        self._release_barriers()

    def run(self) -> None:
        try:
            while self._ready:
                self._run_or_dispatch()
        except BaseException as interrupt:  # running turns write files: they must end first
            self._abort(interrupt)
            while self._running:
                self._wait_until_idle()
            raise
        if self._error:
            raise self._error

    def _run_or_dispatch(self) -> None:
        """Run a single ready turn in this thread, where Ctrl-C interrupts it; dispatch several to threads."""
        with self._turn_lock:
            while len(self._ready) == 1 and (item := self._ready.take()):
                self._run_turn(item)
                self._ready.finish(item)
            self._dispatch_ready()
            is_running = self._running > 0
        if is_running:
            self._wait_until_idle()

    def _wait_until_idle(self) -> None:
        """Wait until no turn runs. Each wait is short, because a signal just before a wait does not end the wait."""
        while True:
            with contextlib.suppress(Empty):
                self._idle_signal.get(timeout=INTERRUPT_DELAY_S)
                # A signal may be old: threads that began while the main thread took a turn may have ended before others.
                if not self._running:
                    return

    def _dispatch_ready(self) -> None:
        while item := self._ready.take():
            self._running += 1
            self._turn_lock.enqueue_start(partial(self._start_thread, item))

    def _start_thread(self, item: Item) -> bool:
        """Start a thread for this turn and its successors; return False if no thread is available."""
        try:
            if not self._error:
                get_pool().start(partial(self._run_thread, item))
                return True
        except RuntimeError as error:  # the system has no more threads
            self._abort(error)
        self._ready.finish(item)
        self._finish_turn(self._order[item[0]])
        self._running -= 1
        if not self._running:
            self._idle_signal.put(None)
        return False

    def _run_thread(self, first: Item) -> None:
        item: Item | None = first
        while item:
            self._run_turn(item)
            self._ready.finish(item)
            item = self._next_for_thread()
        self._running -= 1
        is_last = not self._running
        self._turn_lock.release()
        if is_last:
            self._idle_signal.put(None)

    def _next_for_thread(self) -> Item | None:
        """Return the next turn for a thread with a finished turn, and dispatch the other ready turns."""
        # The last turn is left to the main thread, where Ctrl-C interrupts it at once.
        if self._running == 1 and len(self._ready) == 1:
            return None
        item = self._ready.take()
        self._dispatch_ready()
        return item

    def _run_turn(self, item: Item) -> None:
        (rank, number), is_over = item, True
        name = self._order[rank]
        try:
            try:
                if not number and name in self._followers:
                    self._release(self._followers[name])
                    self._dispatch_ready()
                if number:
                    is_over = self._run_group_turn(name, number)
                elif group := self._call(name):
                    is_over = False
                    self._make_group_ready(name, group)
            finally:
                if is_over:
                    self._finish_turn(name)
                elif self._batcher:
                    self._batcher.remove_turn()
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
            self._abort(error)

    def _make_group_ready(self, name: str, group: ConcurrentTurns) -> None:
        self._groups[name] = _UnfinishedGroup(group, len(group.turns))
        for number in range(1, len(group.turns) + 1):
            self._make_ready(name, number)

    def _run_group_turn(self, name: str, number: int) -> bool:
        """Run a turn of a group; return True after the last turn and the group's final step."""
        unfinished = self._groups[name]
        unfinished.group.turns[number - 1]()
        unfinished.count -= 1
        if unfinished.count or self._error:
            return False
        unfinished.group.finish()
        return True

    def _finish_turn(self, name: str) -> None:
        self._finished.add(name)
        if self._finished_agents:
            self._finished_agents.finish(name)
        if not self._error:
            self._release_dependents(name)
        if self._batcher:
            self._batcher.remove_turn()

    def _abort(self, error: BaseException) -> None:
        """Start no more turns, and end running ones soon. After Ctrl-C this is called without the turn lock."""
        self._stop.set()
        self._error = self._error or error
        for _ in range(self._ready.drop()):
            if self._batcher:
                self._batcher.remove_turn()

    def _release_dependents(self, name: str) -> None:
        self._release(self._dependents.get(name, ()))
        while self._finished_prefix < len(self._order) and self._order[self._finished_prefix] in self._finished:
            self._finished_prefix += 1
        self._release_barriers()

    def _release(self, names: Iterable[str]) -> None:
        for name in names:
            self._unmet[name] -= 1
            if not self._unmet[name]:
                self._make_ready(name)

    def _release_barriers(self) -> None:
        while self._barriers and self._rank[self._barriers[-1]] <= self._finished_prefix:
            self._make_ready(self._barriers.pop())

    def _make_ready(self, name: str, number: int = 0) -> None:
        if self._batcher:
            self._batcher.add_turns()
        self._ready.add((self._rank[name], number))


RARE = (50_000, 50, 100)

_lock = threading.Lock()
_blocks = 0
_saved_threshold = (0, 0, 0)


@contextmanager
def limit_garbage_collection() -> Iterator[None]:
    """Run the block with rare garbage collections, unless the threshold is already higher.

    Objects of hundreds of turns survive a collection and are scanned again and again without effect: half a millisecond
    a turn with a thousand turns. Reference counting still frees the objects of a finished turn.

    The setting holds for the whole process; with overlapping blocks, until the last block is over.
    """
    global _blocks, _saved_threshold
    with _lock:
        if not _blocks:
            _saved_threshold = gc.get_threshold()
            if 0 < _saved_threshold[0] < RARE[0]:  # 0: whoever has turned it off means that
                gc.set_threshold(*RARE)
        _blocks += 1
    try:
        yield
    finally:
        with _lock:
            _blocks -= 1
            if not _blocks:
                gc.set_threshold(*_saved_threshold)


CHECK_STOP_S = 0.5


class FinishedAgents:
    """The agents whose turns of the tick are over, for calls that must follow the turns of other agents.

    `earlier`: by agent, the agents whose turns began before and share a resource with it.
    """

    def __init__(self, earlier: Mapping[str, Collection[str]], stop: threading.Event) -> None:
        self._earlier, self._stop = earlier, stop
        self._finished: set[str] = set()
        self._changed = threading.Condition()

    def finish(self, name: str) -> None:
        """Note that all turns of an agent are over."""
        with self._changed:
            self._finished.add(name)
            self._changed.notify_all()

    def wait_for_earlier(self, name: str) -> bool:
        """Wait until the turns are over that an agent's call must follow. Return False if the engine is to end."""
        remaining = {*self._earlier.get(name, ())}
        with self._changed:
            while not self._stop.is_set():
                remaining -= self._finished
                if not remaining:
                    return True
                self._changed.wait(CHECK_STOP_S)
        return False
