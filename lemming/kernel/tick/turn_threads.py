"""The threads of turns: a pool, and a lock for one at a time. A start costs as much as part of a turn."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")
Work = Callable[[], None]
KEEP_ALIVE_S = 10.0


class Pool:
    """Threads, running or idle for `keep_alive_s` seconds; daemons, so hanging work keeps no process alive."""

    def __init__(self, keep_alive_s: float = KEEP_ALIVE_S) -> None:
        self._keep_alive_s = keep_alive_s
        self._idle: dict[_Worker, None] = {}

    def start(self, work: Work) -> None:
        """Run `work`, which must not raise, on an idle or new thread."""
        try:
            # One step for the interpreter, so no two callers get the same thread.
            worker, _ = self._idle.popitem()
        except KeyError:
            _Worker(self._idle, self._keep_alive_s, work).start()
        else:
            worker.assign(work)


class _Worker(threading.Thread):
    def __init__(self, idle: dict[_Worker, None], keep_alive_s: float, work: Work) -> None:
        super().__init__(name="lemming-turn", daemon=True)
        self._idle, self._keep_alive_s, self._work = idle, keep_alive_s, work
        self._wake_lock = threading.Lock()
        self._wake_lock.acquire()

    def assign(self, work: Work) -> None:
        self._work = work
        self._wake_lock.release()

    def run(self) -> None:
        while True:
            self._work()
            del self._work  # and whatever it refers to
            self._idle[self] = None
            if not self._wake_lock.acquire(timeout=self._keep_alive_s):
                if self._idle.pop(self, self) is None:  # no other unit has taken this thread meanwhile
                    return
                self._wake_lock.acquire()  # it was chosen as its time ran out: work is coming


def get_pool() -> Pool:
    """Return the thread pool of this process; a forked process gets a new pool."""
    return _pool_of_process(os.getpid())


@lru_cache(maxsize=1)
def _pool_of_process(_: int) -> Pool:
    return Pool()


class TurnLock:
    """A fair lock: `with turn_lock:` works, `with turn_lock.waiting:` lets other threads work.

    Threads that compute at the same time gain nothing in Python and pay for each thread switch. The releasing
    thread therefore wakes only the next thread in the queue, which then holds the lock.
    """

    def __init__(self) -> None:
        self.waiting = _Released(self)
        self._queue: deque[Callable[[], bool]] = deque()
        self._is_held = False
        self._lock = threading.Lock()

    def acquire(self) -> None:
        """Wait until this thread holds the turn lock."""
        waiter = _Waiter(self)
        if not waiter.acquire_or_enqueue():
            waiter.wake_lock.acquire()

    def acquire_with_timeout(self, seconds: float, *, behind: int | None = None) -> bool:
        """Wait up to `seconds` for the turn lock, with at most `behind` threads ahead; return True if acquired."""
        waiter = _Waiter(self)
        return waiter.acquire_or_enqueue(behind) or waiter.wake_lock.acquire(timeout=seconds) or waiter.cancel()

    def enqueue_start(self, start: Callable[[], bool]) -> None:
        """Queue `start`, which starts a thread that holds the lock, or returns False to pass it on. Holder only."""
        # Needs no lock: only the holder takes from the queue, and only the holder calls this.
        self._queue.append(start)

    def release(self) -> None:
        """Pass the turn lock to the next in the queue. Holder only."""
        while wake_next := self._pop_waiter():
            if wake_next():
                return

    def _pop_waiter(self) -> Callable[[], bool] | None:
        with self._lock:
            if self._queue:
                return self._queue.popleft()
            self._is_held = False
            return None

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def wait_for_result(future: Future[T]) -> T:
    """Return the result of a future, or raise its error.

    A thread that released the lock joins the queue once the result is available, and is woken in its turn.
    Without the queue, hundreds of threads would wake at once and compete for the interpreter only to queue
    up.
    """
    release = getattr(_thread_state, "let_go", None)
    if release is None:
        return future.result()
    release.release_if_reacquired()
    waiter = _Waiter(release.turn_lock)
    try:
        future.add_done_callback(waiter.on_future_done)
        waiter.wake_lock.acquire()
    except BaseException:
        release.is_reacquired = waiter.cancel()
        raise
    release.is_reacquired = True
    if future.cancelled() or future.exception() is not None:  # other turns work during the decision
        release.release_if_reacquired()
    return future.result()


def get_released_turn_lock() -> TurnLock | None:
    """Return the turn lock released by this thread, or None."""
    release: _LockRelease | None = getattr(_thread_state, "let_go", None)
    return release.turn_lock if release else None


_thread_state = threading.local()
"""For a thread that has released the turn lock: `let_go`, with the lock, and True once the lock is held
again."""


class _LockRelease:
    """A turn lock released by a thread for a block, possibly reacquired before the end of the block."""

    def __init__(self, turn_lock: TurnLock, outer: _LockRelease | None) -> None:
        self.turn_lock, self.outer = turn_lock, outer
        self.is_reacquired = False

    def release_if_reacquired(self) -> None:
        """Release the turn lock if the thread holds the lock again."""
        if self.is_reacquired:
            self.is_reacquired = False
            self.turn_lock.release()


class _Waiter:
    """A thread's position in the queue of a turn lock."""

    def __init__(self, turn_lock: TurnLock) -> None:
        self._turn_lock = turn_lock
        self._is_cancelled = False
        self.wake_lock = threading.Lock()
        self.wake_lock.acquire()

    def acquire_or_enqueue(self, behind: int | None = None) -> bool:
        """Acquire a free turn lock and return True; else join the queue and return False."""
        turn_lock = self._turn_lock
        with turn_lock._lock:
            if turn_lock._is_held and not self._is_cancelled:
                queue = turn_lock._queue
                queue.insert(len(queue) if behind is None else behind, self.wake)
                return False
            is_acquired = not self._is_cancelled
            turn_lock._is_held = turn_lock._is_held or is_acquired
            return is_acquired

    def on_future_done(self, _: object) -> None:
        """Join the queue for a thread whose future has its result."""
        if self.acquire_or_enqueue():
            self.wake_lock.release()

    def wake(self) -> bool:
        """Wake the thread; return False if the thread has left the queue."""
        with self._turn_lock._lock:
            if not self._is_cancelled:
                self.wake_lock.release()
            return not self._is_cancelled

    def cancel(self) -> bool:
        """Leave the queue; return True if this thread already holds the turn lock."""
        with self._turn_lock._lock:
            self._is_cancelled = True
            return self.wake_lock.acquire(blocking=False)


class _Released:
    """Context in which the holder of the turn lock waits for something else and other threads work."""

    def __init__(self, turn_lock: TurnLock) -> None:
        self._turn_lock = turn_lock

    def __enter__(self) -> None:
        _thread_state.let_go = _LockRelease(self._turn_lock, getattr(_thread_state, "let_go", None))
        self._turn_lock.release()

    def __exit__(self, *_: object) -> None:
        release: _LockRelease = _thread_state.let_go
        _thread_state.let_go = release.outer
        if not release.is_reacquired:
            self._turn_lock.acquire()
