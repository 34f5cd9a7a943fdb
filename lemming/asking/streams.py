"""What happens while something runs, event by event: for loops, and for loops of async programs."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Generic, Self, TypedDict, TypeVar, Unpack, overload

from lemming import engine
from lemming.asking.questions import AskOptions, AskOutcome, ask
from lemming.asking.until_answered import Ending
from lemming.kernel.base.clock import Clock
from lemming.kernel.base.errors import UsageError
from lemming.kernel.journal.events import Event, Observer, ignore
from lemming.kernel.journal.report import TickReport

MOST_AHEAD = 1000
"""So many events wait for who takes them; then the run waits."""

R = TypeVar("R")
T = TypeVar("T")


class TickOptions(TypedDict, total=False):
    """How ticks follow each other; `lemming.engine.ticks` tells what each means."""

    interval_s: float | None
    max_ticks: int | None
    until_tick: int | None
    wake_on_change: bool
    eager: bool
    until_quiet: bool
    batch: bool
    watch: bool
    clock: Clock | None
    notify: Observer
    stop: threading.Event | None


class EventStream(Generic[R]):
    """A run whose events are taken one by one: `for event in stream`, or `async for`, once.

    It begins with the first event that is asked for, on a thread of its own. Who leaves the loop early ends
    it: the turns under way still end. What the run raises is raised where its events end.
    """

    def __init__(self, work: Callable[[Observer, threading.Event], R], options: dict[str, Any]) -> None:
        self._work = work
        self._stop = Ending(options.pop("stop", None) or threading.Event())
        self._notify: Observer = options.pop("notify", ignore)
        self._news = threading.Condition()
        self._events: deque[Event] = deque()
        self._wake: Callable[[], object] = bool
        self._run: Future[R] | None = None

    def __iter__(self) -> Iterator[Event]:
        self._begin()
        try:
            while (event := self._next()) is not None:
                yield event
        finally:
            self.close()
        self._outcome()

    async def __aiter__(self) -> AsyncIterator[Event]:
        loop, news = asyncio.get_running_loop(), asyncio.Event()
        self._wake = lambda: loop.call_soon_threadsafe(news.set)
        self._begin()
        try:
            while True:
                news.clear()  # before the look, or what comes after it is missed
                while (event := self._oldest()) is not None:
                    yield event
                if self._is_over and not self._events:
                    break
                await news.wait()
        finally:
            await asyncio.to_thread(self.close)  # it waits for the run, and the loop must not
        self._outcome()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the run, once the turns under way have ended; events that nobody took are passed over."""
        self._stop.set()
        with self._news:
            self._wake = bool  # the loop may be closed before the run ends
            self._news.notify_all()
        if self._run:
            wait([self._run])

    @property
    def result(self) -> R:
        """What came of it, once its events are over. Raises `UsageError` before, and what the run raised."""
        if not self._is_over:
            raise UsageError("it is not over", hint="take its events to the end: for event in stream: ...")
        return self._outcome()

    def _begin(self) -> None:
        if self._run:
            raise UsageError("its events are taken already", hint="a stream is gone through once")
        with_one = ThreadPoolExecutor(1, "lemming-stream")
        self._run = with_one.submit(self._work, self._hear, self._stop)
        self._run.add_done_callback(self._announce)
        with_one.shutdown(wait=False)

    @property
    def _is_over(self) -> bool:
        return self._run is not None and self._run.done()

    def _announce(self, _: Any = None) -> None:
        with self._news:
            self._news.notify_all()
            self._wake()

    def _hear(self, event: Event) -> None:
        self._notify(event)
        with self._news:
            self._news.wait_for(lambda: len(self._events) < MOST_AHEAD or self._stop.is_set())
            self._events.append(event)
        self._announce()

    def _next(self) -> Event | None:
        with self._news:
            self._news.wait_for(lambda: self._events or self._is_over)
        return self._oldest()

    def _oldest(self) -> Event | None:
        with self._news:
            self._news.notify_all()
            return self._events.popleft() if self._events else None

    def _outcome(self) -> R:
        assert self._run
        return self._run.result()


@overload
def stream_ask(
    org: str | os.PathLike[str], agent: str, text: str, *, returns: type[T], **options: Unpack[AskOptions]
) -> EventStream[AskOutcome[T]]: ...
@overload
def stream_ask(
    org: str | os.PathLike[str],
    agent: str,
    text: str,
    *,
    returns: None = None,
    **options: Unpack[AskOptions],
) -> EventStream[AskOutcome[Any]]: ...
def stream_ask(
    org: str | os.PathLike[str],
    agent: str,
    text: str,
    *,
    returns: type[Any] | None = None,
    **options: Unpack[AskOptions],
) -> EventStream[AskOutcome[Any]]:
    """Do what `ask` does, and give what happens meanwhile; `result` is the outcome.

    Models that can are heard as they write (`ModelWrote`). Where another engine runs the organisation, its
    events are not heard here.
    """
    asked: dict[str, Any] = {"watch": True, **options}

    def work(notify: Observer, stop: threading.Event) -> AskOutcome[Any]:
        return ask(org, agent, text, returns=returns, notify=notify, stop=stop, **asked)

    return EventStream(work, asked)


def stream_ticks(
    org: str | os.PathLike[str], **options: Unpack[TickOptions]
) -> EventStream[TickReport | None]:
    """Run ticks as `lemming.engine.ticks` does, and give what happens; `result` is the last tick's report."""
    asked = dict[str, Any](options)

    def work(notify: Observer, stop: threading.Event) -> TickReport | None:
        report = None
        for report in engine.ticks(org, notify=notify, stop=stop, **asked):  # noqa: B007
            pass
        return report

    return EventStream(work, asked)
