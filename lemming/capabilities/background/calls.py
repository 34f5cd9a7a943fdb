"""Async SDK clients on one background event loop.

The timeouts of SDKs count from byte to byte, so a server that drips holds a call for ever. Here the whole
call has a deadline, and is cancelled when time is up.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from typing import Any, Generic, Protocol, TypeVar

from lemming.capabilities.background.polite_loop import PoliteSelector, new_loop
from lemming.kernel.base.deadlines import NEVER, wait_slices
from lemming.kernel.base.errors import RequestRejected, Unavailable
from lemming.kernel.llm.calls import timed_out
from lemming.kernel.tick.executors.turn_lock import turn_lock_here, wait_for

_CLOSING_TIME_S = 2.0

T = TypeVar("T")


class AsyncClient(Protocol):
    """What the SDKs' async clients have in common."""

    async def close(self) -> None:
        """Close all connections."""


C = TypeVar("C", bound=AsyncClient)


def run(
    work: Callable[[], Coroutine[Any, Any, T]], deadline_s: float, *, stop: threading.Event | None = None
) -> T:
    """Run async work on the background loop and wait for it; raise `TimedOut` when it takes too long.

    Ctrl-C in the waiting thread cancels the work. So does setting `stop`, and then `Unavailable` is raised.
    """
    future = _background().begin(work, deadline_s)
    try:
        if stop is not None:
            _await_or_stop(future, stop)
        return wait_for(future)
    except BaseException:
        future.cancel()
        raise


def _await_or_stop(future: Future[Any], stop: threading.Event) -> None:
    """Wait until the work is over; raise `Unavailable` once a stop is set and it is not."""
    for seconds in wait_slices(NEVER, stop, grace_s=0):
        if wait([future], seconds).done:
            return
    raise Unavailable("the call was broken off: the engine is to end")


class SharedClient(Generic[C]):
    """An async SDK client: made when first used, kept, and closed with its owner or with the process.

    `make` gets the API key. A new one is made when the key changes and in a forked child.
    """

    def __init__(self, make: Callable[[str], C]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._client: C | None = None
        self._made_for: tuple[_Background, str] | None = None

    def get(self, key: str = "") -> C:
        """Return the client, on the calling thread: importing an SDK takes its time."""
        background = _background()
        with self._lock:
            if self._client is None or self._made_for != (background, key):
                self._client, self._made_for = self._make(key), (background, key)
                background.adopt(self._client, owner=self)
            return self._client


class _Background:
    """An event loop on a daemon thread, and the clients that live on it."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._selector = PoliteSelector()
        self.loop = new_loop(self._selector)
        self._clients: set[AsyncClient] = set()
        self._calls: set[asyncio.Task[Any]] = set()
        self._beginning = threading.Lock()
        self._is_ending = False
        self._thread = threading.Thread(target=self._run, name="lemming-calls", daemon=True)
        self._thread.start()
        atexit.register(self.stop)

    def _run(self) -> None:
        try:
            self.loop.run_forever()
        finally:
            self._selector.let_go()

    def begin(self, work: Callable[[], Coroutine[Any, Any, T]], deadline_s: float) -> Future[T]:
        """Begin a call, and return where its outcome will be. None begins once the process is ending."""
        self._selector.turn_lock = turn_lock_here() or self._selector.turn_lock
        with self._beginning:
            if self._is_ending:
                raise RequestRejected("the process is ending")
            return asyncio.run_coroutine_threadsafe(self._in_time(work, deadline_s), self.loop)

    async def _in_time(self, work: Callable[[], Coroutine[Any, Any, T]], deadline_s: float) -> T:
        if task := asyncio.current_task():
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)
        try:
            async with asyncio.timeout(deadline_s):
                return await work()
        except TimeoutError:
            raise timed_out(deadline_s) from None

    def adopt(self, client: AsyncClient, *, owner: object) -> None:
        """Close the client when its owner is gone, or in `stop`."""
        self._clients.add(client)
        # not at exit: `stop` closes what is left then, while the loop still runs
        weakref.finalize(owner, self._release, client).atexit = False

    def _release(self, client: AsyncClient) -> None:
        if not self.loop.is_closed() and self.process == os.getpid():
            asyncio.run_coroutine_threadsafe(self._close(client), self.loop)

    async def _close(self, client: AsyncClient) -> None:
        if client in self._clients:
            self._clients.remove(client)
            await client.close()

    def stop(self) -> None:
        """Cancel what runs, close every connection, end the thread. The process is about to exit."""
        if self.process != os.getpid():  # a forked child has the loop but not its thread
            return
        with self._beginning:
            self._is_ending = True
        closing = asyncio.run_coroutine_threadsafe(self._close_all(), self.loop)
        with contextlib.suppress(TimeoutError):
            closing.result(_CLOSING_TIME_S)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_CLOSING_TIME_S)
        if not self._thread.is_alive():
            self.loop.close()

    async def _close_all(self) -> None:
        await asyncio.sleep(0)  # a call that has just begun takes its first step
        calls = list(self._calls)  # not all tasks: a call ends its own, and knows which have not begun
        for task in calls:
            task.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await asyncio.gather(*map(self._close, list(self._clients)), return_exceptions=True)
        self.loop.set_exception_handler(
            lambda *_: None
        )  # of what does not end in time nobody can do anything
        await self.loop.shutdown_asyncgens()


_starting = threading.Lock()
_current: _Background | None = None


def _background() -> _Background:
    global _current
    with _starting:
        if _current is None or _current.process != os.getpid():
            _current = _Background()
        return _current
