"""Turns at once, each in a thread of its own, as soon as those it waits for are over."""

from __future__ import annotations

import threading
from collections.abc import Callable
from heapq import heappop, heappush
from queue import SimpleQueue
from typing import Protocol

from lemming.waiting import Waits

Work = Callable[[str], None]


class Register(Protocol):
    """Who counts the turns that may still ask something: `Batches`."""

    def entered(self, turns: int = 1) -> None:
        """Count turns that may start now."""

    def left(self) -> None:
        """Count a turn that is over; those that may start because of it have entered before."""


def run_all(
    order: list[str],
    waits: dict[str, Waits],
    work: Work,
    *,
    at_once: int,
    stop: threading.Event,
    register: Register | None = None,
) -> None:
    """Call `work(name)` for every name, at most `at_once` at a time, each after those it waits for.

    Those that are ready start in the order given. An exception sets `stop`, for the running ones to end
    soon; nobody starts any more, and it is raised when they are over.
    """
    try:
        if at_once == 1 or len(order) == 1:
            for name in order:
                work(name)
        else:
            _Run(order, waits, work, at_once, stop, register).run()
    except BaseException:
        stop.set()
        raise


class _Run:
    """The progress of one `run_all`. Everything but `_work` happens in the calling thread."""

    def __init__(
        self,
        order: list[str],
        waits: dict[str, Waits],
        work: Work,
        at_once: int,
        stop: threading.Event,
        register: Register | None,
    ) -> None:
        self._order, self._call, self._at_once = order, work, at_once
        self._stop, self._register = stop, register
        self._rank = {name: rank for rank, name in enumerate(order)}
        for_some = [name for name in order if not waits[name].everyone]
        self._missing = {name: len(waits[name].names) for name in for_some}
        self._waiting: dict[str, list[str]] = {}
        for name in for_some:
            for other in waits[name].names:
                self._waiting.setdefault(other, []).append(name)
        self._for_everyone = [name for name in reversed(order) if waits[name].everyone]
        self._ready: list[int] = []
        self._over: set[str] = set()
        self._leading = 0  # so many from the front are over
        self._running = 0
        self._threads = 0
        self._tasks: SimpleQueue[str | None] = SimpleQueue()
        self._results: SimpleQueue[tuple[str, BaseException | None]] = SimpleQueue()
        self._error: BaseException | None = None
        for name in for_some:
            if not self._missing[name]:
                self._make_ready(name)
        self._let_in_those_for_everyone()

    def run(self) -> None:
        try:
            while self._start() or self._running:
                self._end(*self._results.get())
        except BaseException as interrupt:  # what runs writes files, so it must be over first
            self._stop.set()
            self._error = interrupt
            if self._register:
                for _ in self._ready:  # these will never ask
                    self._register.left()
            while self._running:
                self._end(*self._results.get())
            raise
        finally:
            for _ in range(self._threads):
                self._tasks.put(None)
        if self._error:
            raise self._error

    def _start(self) -> bool:
        """Start what may start, and return whether anything was; a single one runs in this thread."""
        if self._error:
            return False
        if not self._running and len(self._ready) == 1:
            self._running = 1
            self._work(self._order[heappop(self._ready)])
            return True
        started = False
        while self._ready and self._running < self._at_once:
            if self._threads <= self._running:
                self._threads += 1
                threading.Thread(target=self._serve, name="lemming-turn", daemon=True).start()
            self._tasks.put(self._order[heappop(self._ready)])
            self._running += 1
            started = True
        return started

    def _serve(self) -> None:
        while (name := self._tasks.get()) is not None:
            self._work(name)

    def _work(self, name: str) -> None:
        error: BaseException | None = None
        try:
            self._call(name)
        except BaseException as raised:  # noqa: BLE001 - carried to the thread that waits, and raised there
            error = raised
            self._stop.set()
        self._results.put((name, error))

    def _end(self, name: str, error: BaseException | None) -> None:
        self._running -= 1
        self._error = self._error or error
        self._over.add(name)
        for other in self._waiting.get(name, ()):
            self._missing[other] -= 1
            if not self._missing[other]:
                self._make_ready(other)
        while self._leading < len(self._order) and self._order[self._leading] in self._over:
            self._leading += 1
        self._let_in_those_for_everyone()
        if self._register:
            self._register.left()

    def _let_in_those_for_everyone(self) -> None:
        while self._for_everyone and self._rank[self._for_everyone[-1]] <= self._leading:
            self._make_ready(self._for_everyone.pop())

    def _make_ready(self, name: str) -> None:
        if self._register:
            self._register.entered()
        heappush(self._ready, self._rank[name])
