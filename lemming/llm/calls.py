"""One model call: how long it may take in all, and what may come out of it.

The timeouts of SDKs count from byte to byte, so a server that drips holds a call for ever. Here the
whole call has a deadline: async SDK clients run on one background event loop and are cancelled when
time is up; a provider that does not keep deadlines itself runs on a daemon thread that is left behind.

`ask` is the edge: a `Reply` or a `ProviderError` comes out of it, redacted, and nothing else.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Generic, Protocol, TypeVar

from lemming.deadlines import LeftBehind, run_on_thread
from lemming.errors import LemmingError, ProviderError, RequestRejected, TimedOut
from lemming.plugins.errors import provider_error
from lemming.providers import LLMProvider, Reply, Request
from lemming.redaction import excerpt, redact_reply

_LONGEST_MESSAGE_CHARS = 400
_CLOSING_TIME_S = 2.0

T = TypeVar("T")


class AsyncClient(Protocol):
    """What the SDKs' async clients have in common."""

    async def close(self) -> None:
        """Close all connections."""


C = TypeVar("C", bound=AsyncClient)


# --- the edge ----------------------------------------------------------------------------------


def ask(provider: LLMProvider, request: Request) -> Reply:
    """Return the provider's reply within `request.deadline_s`; raise a `ProviderError` and nothing else.

    A provider whose `keeps_deadline` is false and that hangs is abandoned: its thread lives on until
    the call returns or the process ends, and what it returns is not looked at. Ctrl-C passes through.
    """

    def answer() -> Reply:
        if provider.keeps_deadline:
            return checked(provider.complete(request))
        return checked(_on_thread(lambda: provider.complete(request), request.deadline_s))

    return guarded(answer, f"{type(provider).__name__} {request.model_name}".strip())


def guarded(work: Callable[[], T], name: str) -> T:
    """Return what work with a provider returns; raise a redacted `ProviderError` and nothing else.

    `name` says who was asked. Ctrl-C passes through.
    """
    try:
        return work()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the edge of a model call
        # No chain: the SDK's own exceptions hold whole answers and request headers.
        raise _as_provider_error(error, name) from None


def checked(reply: Any) -> Reply:
    """Return a provider's reply with a text that can be written down; raise when it is none."""
    if not isinstance(reply, Reply) or not isinstance(reply.text, str):
        found = reply.text if isinstance(reply, Reply) else reply
        raise RequestRejected(f"the provider returned {type(found).__name__}, not text")
    text = redact_reply(reply.text)  # here, where a call was made: only this machine may know its key
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair is not text and cannot be written to any file
        text = text.encode("utf-8", "replace").decode()
    return reply if text == reply.text else reply._replace(text=text)


def _as_provider_error(error: BaseException, name: str) -> ProviderError:
    """Return the error that leaves the edge: of one kind, redacted, cut. `name` says who was asked."""
    if isinstance(error, ProviderError):
        known = error
    elif isinstance(error, LemmingError):
        known = RequestRejected(error.message, where=error.where, hint=error.hint)
    elif type(error) is TimeoutError and not str(error):
        known = TimedOut("no answer in time")
    else:
        known = provider_error(error, name)
    known.message = excerpt(known.message, _LONGEST_MESSAGE_CHARS)
    known.hint = excerpt(known.hint, _LONGEST_MESSAGE_CHARS)
    known.where = excerpt(known.where, _LONGEST_MESSAGE_CHARS) or name
    known.args = (known.message,)
    return known


def timed_out(deadline_s: float) -> TimedOut:
    """Return the error for a call that took longer than its deadline."""
    hint = "raise deadline_s in config/models.json, or choose a faster model"
    return TimedOut(f"no answer within {deadline_s:.3g} s", hint=hint)


def _on_thread(work: Callable[[], T], deadline_s: float) -> T:
    """Run blocking work; raise `TimedOut` and leave the thread behind when it takes too long."""
    try:
        return run_on_thread(work, deadline_s, name="lemming-provider")
    except (LeftBehind, TimeoutError):
        raise timed_out(deadline_s) from None


# --- async SDKs --------------------------------------------------------------------------------


def run(work: Callable[[], Coroutine[Any, Any, T]], deadline_s: float) -> T:
    """Run async work on the background loop and wait for it; raise `TimedOut` when it takes too long.

    Ctrl-C in the waiting thread cancels the work.
    """
    future = _background().begin(work, deadline_s)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


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
        self.loop = asyncio.new_event_loop()
        self._clients: set[AsyncClient] = set()
        self._calls: set[asyncio.Task[Any]] = set()
        self._beginning = threading.Lock()
        self._is_ending = False
        self._thread = threading.Thread(target=self.loop.run_forever, name="lemming-calls", daemon=True)
        self._thread.start()
        atexit.register(self.stop)

    def begin(self, work: Callable[[], Coroutine[Any, Any, T]], deadline_s: float) -> Future[T]:
        """Begin a call, and return where its outcome will be. None begins once the process is ending."""
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
        await self.loop.shutdown_asyncgens()


_starting = threading.Lock()
_current: _Background | None = None


def _background() -> _Background:
    global _current
    with _starting:
        if _current is None or _current.process != os.getpid():
            _current = _Background()
        return _current
