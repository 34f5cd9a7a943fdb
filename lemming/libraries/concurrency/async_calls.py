"""Async SDK clients on one background event loop.

Timeouts of SDKs apply between bytes, so a slowly dripping server holds a call for ever. Here the whole call
has a deadline and is cancelled afterwards.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import selectors
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from typing import Any, Generic, Protocol, TypeVar

from lemming.kernel.base.blocking_deadline import NEVER, wait_slices
from lemming.kernel.base.errors import RequestRejected, Unavailable
from lemming.kernel.llm.model_call import timeout_error
from lemming.kernel.tick.turn_threads import TurnLock, get_released_turn_lock, wait_for_result

_CLOSE_TIMEOUT_S = 2.0
MAX_TURNS_AHEAD = 20
"""Maximum turns that go before the loop, which then has all the more to do."""
MAX_WAIT_S = 0.1
RETRY_AFTER_S = 1.0
"""Seconds before the loop queues again: the working thread may be waiting for the loop."""
MAX_HOLD_S = 0.01

T = TypeVar("T")


class AsyncClient(Protocol):
    """Common interface of the SDKs' async clients."""

    async def close(self) -> None:
        """Close all connections."""


C = TypeVar("C", bound=AsyncClient)


def run_async(
    work: Callable[[], Coroutine[Any, Any, T]], deadline_s: float, *, stop: threading.Event | None = None
) -> T:
    """Run async work on the background loop and wait. Raises `TimedOut` after the deadline.

    Ctrl-C in the waiting thread cancels the work. Setting `stop` cancels the work and raises `Unavailable`.
    """
    future = _get_background_loop().submit(work, deadline_s)
    try:
        if stop is not None:
            _await_or_stop(future, stop)
        return wait_for_result(future)
    except BaseException:
        future.cancel()
        raise


def _await_or_stop(future: Future[Any], stop: threading.Event) -> None:
    """Wait for the end of the work. Raises `Unavailable` if a stop is set earlier."""
    for seconds in wait_slices(NEVER, stop, grace_s=0):
        if wait([future], seconds).done:
            return
    raise Unavailable("the call was cancelled: the engine is stopping")


class SharedClient(Generic[C]):
    """An async SDK client: created on first use, cached, closed with the owner or the process.

    `make` gets the API key. A new client is created after a change of the key and in a forked child.
    """

    def __init__(self, make: Callable[[str], C]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._client: C | None = None
        self._made_for: tuple[_BackgroundLoop, str] | None = None

    def get(self, key: str = "") -> C:
        """Return the client. Created on the calling thread, because the import of an SDK is slow."""
        background = _get_background_loop()
        with self._lock:
            if self._client is None or self._made_for != (background, key):
                self._client, self._made_for = self._make(key), (background, key)
                background.register(self._client, owner=self)
            return self._client


class PoliteSelector(selectors.DefaultSelector):
    """Selector of the loop: waits for events, then for the turn lock, if any: `turn_lock`.

    Python runs one thread at a time. A loop that wakes up during a turn forces a thread switch at each written
    file, a dozen per turn; the switches cost as much CPU as the call itself. So before handling events, the loop
    waits for the turn lock, for a short time at most: late events of the loop only wait longer.
    """

    turn_lock: TurnLock | None = None

    def __init__(self) -> None:
        super().__init__()
        self._acquired: TurnLock | None = None
        self._acquired_at, self._failed_at = 0.0, -RETRY_AFTER_S

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the events once no turn works, or after a short wait."""
        is_busy = timeout is not None and timeout <= 0
        if is_busy and self._acquired and time.perf_counter() < self._acquired_at + MAX_HOLD_S:
            return super().select(timeout)
        self.release()
        events = super().select(timeout)
        current_time = time.perf_counter()
        if self.turn_lock and current_time > self._failed_at + RETRY_AFTER_S:
            if self.turn_lock.acquire_with_timeout(MAX_WAIT_S, behind=MAX_TURNS_AHEAD):
                self._acquired, self._acquired_at = self.turn_lock, time.perf_counter()
            else:
                self._failed_at = time.perf_counter()
        return events

    def release(self) -> None:
        """Release the turn lock for other threads."""
        if self._acquired:
            self._acquired.release()
            self._acquired = None


class _BackgroundLoop:
    """An event loop on a daemon thread, and the clients on the loop."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._selector = PoliteSelector()
        self.loop = asyncio.SelectorEventLoop(self._selector)
        self._clients: set[AsyncClient] = set()
        self._calls: set[asyncio.Task[Any]] = set()
        self._submit_lock = threading.Lock()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="lemming-calls", daemon=True)
        self._thread.start()
        atexit.register(self.stop)

    def _run(self) -> None:
        try:
            self.loop.run_forever()
        finally:
            self._selector.release()

    def submit(self, work: Callable[[], Coroutine[Any, Any, T]], deadline_s: float) -> Future[T]:
        """Start a call and return the future. Raises once the process is ending."""
        self._selector.turn_lock = get_released_turn_lock() or self._selector.turn_lock
        with self._submit_lock:
            if self._is_stopping:
                raise RequestRejected("the process is ending")
            return asyncio.run_coroutine_threadsafe(self._run_with_deadline(work, deadline_s), self.loop)

    async def _run_with_deadline(self, work: Callable[[], Coroutine[Any, Any, T]], deadline_s: float) -> T:
        if task := asyncio.current_task():
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)
        try:
            async with asyncio.timeout(deadline_s):
                return await work()
        except TimeoutError:
            raise timeout_error(deadline_s) from None

    def register(self, client: AsyncClient, *, owner: object) -> None:
        """Close the client with the owner, or in `stop`."""
        self._clients.add(client)
        # not at exit: `stop` closes the remaining ones while the loop still runs
        weakref.finalize(owner, self._schedule_close, client).atexit = False

    def _schedule_close(self, client: AsyncClient) -> None:
        if not self.loop.is_closed() and self.process == os.getpid():
            asyncio.run_coroutine_threadsafe(self._close_client(client), self.loop)

    async def _close_client(self, client: AsyncClient) -> None:
        if client in self._clients:
            self._clients.remove(client)
            await client.close()

    def stop(self) -> None:
        """Cancel all calls, close every connection, end the thread. Called before the process exits."""
        if self.process != os.getpid():  # a forked child has the loop but not its thread
            return
        with self._submit_lock:
            self._is_stopping = True
        closing = asyncio.run_coroutine_threadsafe(self._close_all(), self.loop)
        with contextlib.suppress(TimeoutError):
            closing.result(_CLOSE_TIMEOUT_S)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_CLOSE_TIMEOUT_S)
        if not self._thread.is_alive():
            self.loop.close()

    async def _close_all(self) -> None:
        await asyncio.sleep(0)  # a call that has just begun takes its first step
        calls = list(self._calls)  # not all tasks: a call ends its own, and knows which have not begun
        for task in calls:
            task.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await asyncio.gather(*map(self._close_client, list(self._clients)), return_exceptions=True)
        self.loop.set_exception_handler(lambda *_: None)  # a task that does not end in time cannot be helped
        await self.loop.shutdown_asyncgens()


_starting = threading.Lock()
_current: _BackgroundLoop | None = None


def _get_background_loop() -> _BackgroundLoop:
    global _current
    with _starting:
        if _current is None or _current.process != os.getpid():
            _current = _BackgroundLoop()
        return _current
