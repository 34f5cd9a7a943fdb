"""Streams of the events of a run, for synchronous and asynchronous loops."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Generic, Self, TypeVar, Unpack, overload

from lemming.client.ask_client import AskOptions, AskOutcome, ask
from lemming.client.request_waiter import StopOrTimeout
from lemming.engine import TickOptions, ticks
from lemming.kernel.base.errors import UsageError
from lemming.kernel.journal.engine_events import Event, Observer, ignore_event
from lemming.kernel.journal.turn_report import TickReport

MAX_BUFFERED = 1000
"""Maximum buffered events; then the run waits for the consumer."""

R = TypeVar("R")
T = TypeVar("T")


class EventStream(Generic[R]):
    """A run with its events: iterate once, by `for event in stream` or `async for`.

    The run begins with the first requested event, on a thread of its own. Leaving the loop early ends the run
    after the running turns. An error of the run is raised after its last event.
    """

    def __init__(self, work: Callable[[Observer, threading.Event], R], options: dict[str, Any]) -> None:
        self._work = work
        self._stop = StopOrTimeout(options.pop("stop", None) or threading.Event())
        self._notify: Observer = options.pop("notify", ignore_event)
        self._condition = threading.Condition()
        self._events: deque[Event] = deque()
        self._wake: Callable[[], object] = bool
        self._run: Future[R] | None = None

    def __iter__(self) -> Iterator[Event]:
        self._start_thread()
        try:
            while (event := self._wait_for_event()) is not None:
                yield event
        finally:
            self.close()
        self._get_result()

    async def __aiter__(self) -> AsyncIterator[Event]:
        loop, news = asyncio.get_running_loop(), asyncio.Event()
        self._wake = lambda: loop.call_soon_threadsafe(news.set)
        self._start_thread()
        try:
            while True:
                news.clear()  # before the scan, or later events are missed
                while (event := self._pop_event()) is not None:
                    yield event
                if self._is_finished and not self._events:
                    break
                await news.wait()
        finally:
            await asyncio.to_thread(self.close)  # it waits for the run, and the loop must not
        self._get_result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the run after its running turns, and drop unread events."""
        self._stop.set()
        with self._condition:
            self._wake = bool  # the loop may be closed before the run ends
            self._condition.notify_all()
        if self._run:
            wait([self._run])

    @property
    def result(self) -> R:
        """The result of the run. Raises `UsageError` before the last event, and any error of the run."""
        if not self._is_finished:
            raise UsageError("the stream has not ended", hint="read its events to the end: for event in stream: ...")
        return self._get_result()

    def _start_thread(self) -> None:
        if self._run:
            raise UsageError("the events have already been read", hint="ask again for a new stream")
        executor = ThreadPoolExecutor(1, "lemming-stream")
        self._run = executor.submit(self._work, self._on_event, self._stop)
        self._run.add_done_callback(self._notify_waiters)
        executor.shutdown(wait=False)

    @property
    def _is_finished(self) -> bool:
        return self._run is not None and self._run.done()

    def _notify_waiters(self, _: Any = None) -> None:
        with self._condition:
            self._condition.notify_all()
            self._wake()

    def _on_event(self, event: Event) -> None:
        self._notify(event)
        with self._condition:
            self._condition.wait_for(lambda: len(self._events) < MAX_BUFFERED or self._stop.is_set())
            self._events.append(event)
        self._notify_waiters()

    def _wait_for_event(self) -> Event | None:
        with self._condition:
            self._condition.wait_for(lambda: self._events or self._is_finished)
        return self._pop_event()

    def _pop_event(self) -> Event | None:
        with self._condition:
            self._condition.notify_all()
            return self._events.popleft() if self._events else None

    def _get_result(self) -> R:
        assert self._run
        return self._run.result()


@overload
def stream_ask(
    org: str | os.PathLike[str], agent: str, text: str, *, returns: type[T], **options: Unpack[AskOptions]
) -> EventStream[AskOutcome[T]]: ...
@overload
def stream_ask(
    org: str | os.PathLike[str], agent: str, text: str, *, returns: None = None, **options: Unpack[AskOptions]
) -> EventStream[AskOutcome[Any]]: ...
def stream_ask(
    org: str | os.PathLike[str],
    agent: str,
    text: str,
    *,
    returns: type[Any] | None = None,
    **options: Unpack[AskOptions],
) -> EventStream[AskOutcome[Any]]:
    """Run `ask` and stream its events; `result` is the outcome.

    Models with streaming report their text as they write (`ModelWrote`). If another engine runs the
    organisation, its events are not included.
    """
    ask_options: dict[str, Any] = {"watch": True, **options}
    return EventStream(
        lambda notify, stop: ask(org, agent, text, returns=returns, notify=notify, stop=stop, **ask_options),
        ask_options,
    )


def stream_ticks(org: str | os.PathLike[str], **options: Unpack[TickOptions]) -> EventStream[TickReport | None]:
    """Run ticks as `lemming.engine.ticks` does and stream the events; `result` is the last tick's report."""
    tick_options = dict[str, Any](options)

    def run_ticks(notify: Observer, stop: threading.Event) -> TickReport | None:
        report = None
        for report in ticks(org, notify=notify, stop=stop, **tick_options):  # noqa: B007
            pass
        return report

    return EventStream(run_ticks, tick_options)
