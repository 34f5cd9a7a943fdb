"""Turns at once, each as soon as those it waits for are over: one works, the others wait for an answer."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue

from lemming.kernel.tick.dependencies import Waits
from lemming.kernel.tick.executors.lanes import Item, Lane, ReadyTurns
from lemming.kernel.tick.executors.pool import pool
from lemming.kernel.tick.executors.turn_lock import TurnLock
from lemming.kernel.tick.side_by_side import Row
from lemming.kernel.turn.places import Gathering

Work = Callable[[str], Row | None]
HEARD_WITHIN_S = 0.5
"""So late may Ctrl-C be heard that came while the system was about to put the main thread to sleep."""


def run_all(
    order: list[str],
    waits: dict[str, Waits],
    work: Work,
    *,
    at_once: int,
    lane_of: Callable[[str], Lane] | None = None,
    turn_lock: TurnLock,
    stop: threading.Event,
    register: Gathering | None = None,
) -> None:
    """Call `work(name)` for every name, each after those it waits for.

    At most `at_once` at a time; with `lane_of`, as many as there is room for in the lane of each, unless
    `at_once` is 1. What it returns are further turns, which are among those at once, and what is done when
    they are over: the name is over with that.
    Of those calls one works, the one that holds the `turn_lock`; the others are `turn_lock.waiting`. Those
    that are ready start in the order given. An exception sets `stop`, for the running ones to end soon;
    nobody starts any more, and it is raised when they are over.
    """
    try:
        if at_once == 1:
            with turn_lock:
                for name in order:
                    if row := work(name):
                        for turn in row.turns:
                            turn()
                        row.finish()
        else:
            ready = ReadyTurns(order, lane_of or (lambda _: Lane("", at_once)))
            _Run(order, waits, work, ready, turn_lock, stop, register).run()
    except BaseException:
        stop.set()
        raise


@dataclass
class _RowLeft:
    """A row of turns, so many of which are not over."""

    row: Row
    count: int


class _Run:
    """The progress of one `run_all`. Only who holds the turn lock touches it.

    A thread whose turn is over takes the next one, without another thread in between.
    """

    def __init__(
        self,
        order: list[str],
        waits: dict[str, Waits],
        work: Work,
        ready: ReadyTurns,
        turn_lock: TurnLock,
        stop: threading.Event,
        register: Gathering | None,
    ) -> None:
        self._order, self._call, self._ready = order, work, ready
        self._turn_lock, self._stop, self._register = turn_lock, stop, register
        self._rank = {name: rank for rank, name in enumerate(order)}
        for_some = [name for name in order if not waits[name].everyone]
        self._missing = {name: len(waits[name].names) for name in for_some}
        self._waiting: dict[str, list[str]] = {}
        for name in for_some:
            for other in waits[name].names:
                self._waiting.setdefault(other, []).append(name)
        self._for_everyone = [name for name in reversed(order) if waits[name].everyone]
        self._rows: dict[str, _RowLeft] = {}
        self._over: set[str] = set()
        self._leading = 0  # so many from the front are over
        self._running = 0  # turns that have a thread, or are promised one
        self._none_runs: SimpleQueue[None] = SimpleQueue()  # unlike a semaphore, whole after Ctrl-C
        self._error: BaseException | None = None
        for name in for_some:
            if not self._missing[name]:
                self._make_ready(name)
        self._let_in_those_for_everyone()

    def run(self) -> None:
        try:
            while self._ready:
                self._work_or_hand_out()
        except BaseException as interrupt:  # what runs writes files, so it must be over first
            self._fail(interrupt)
            while self._running:
                self._wait_for_the_last()
            raise
        if self._error:
            raise self._error

    def _work_or_hand_out(self) -> None:
        """Take a single turn here, where Ctrl-C ends it at once; let several have threads of their own."""
        with self._turn_lock:
            while len(self._ready) == 1 and (item := self._ready.take()):
                self._work(item)
                self._ready.end(item)
            self._hand_out()
            is_any_under_way = self._running > 0
        if is_any_under_way:
            self._wait_for_the_last()

    def _wait_for_the_last(self) -> None:
        """Wait until none runs. A signal that comes just before a wait does not end it: so none is long."""
        while True:
            with contextlib.suppress(Empty):
                return self._none_runs.get(timeout=HEARD_WITHIN_S)

    def _hand_out(self) -> None:
        while item := self._ready.take():
            self._running += 1
            self._turn_lock.promise(partial(self._begin, item))

    def _begin(self, item: Item) -> bool:
        """Let a thread take this turn and those it makes way for; return whether there is a thread."""
        try:
            if not self._error:
                pool().start(partial(self._serve, item))
                return True
        except RuntimeError as error:  # the system has no more threads
            self._fail(error)
        self._ready.end(item)
        self._end(self._order[item[0]])
        self._running -= 1
        if not self._running:
            self._none_runs.put(None)
        return False

    def _serve(self, first: Item) -> None:
        item: Item | None = first
        while item:
            self._work(item)
            self._ready.end(item)
            item = self._following()
        self._running -= 1
        is_last = not self._running
        self._turn_lock.pass_on()
        if is_last:
            self._none_runs.put(None)

    def _following(self) -> Item | None:
        """Return what a thread does whose turn is over, and let others start that may."""
        # The last one left is the main thread's, where Ctrl-C ends it at once.
        if self._running == 1 and len(self._ready) == 1:
            return None
        item = self._ready.take()
        self._hand_out()
        return item

    def _work(self, item: Item) -> None:
        (rank, number), is_over = item, True
        name = self._order[rank]
        try:
            try:
                if number:
                    is_over = self._take_of_row(name, number)
                elif row := self._call(name):
                    is_over = False
                    self._make_row_ready(name, row)
            finally:
                if is_over:
                    self._end(name)
                elif self._register:
                    self._register.left()
        except BaseException as error:  # noqa: BLE001 - carried to the thread that waits, and raised there
            self._fail(error)

    def _make_row_ready(self, name: str, row: Row) -> None:
        self._rows[name] = _RowLeft(row, len(row.turns))
        for number in range(1, len(row.turns) + 1):
            self._make_ready(name, number)

    def _take_of_row(self, name: str, number: int) -> bool:
        """Take a turn of a row; return whether it was the last, and what follows is done."""
        left = self._rows[name]
        left.row.turns[number - 1]()
        left.count -= 1
        if left.count or self._error:
            return False
        left.row.finish()
        return True

    def _end(self, name: str) -> None:
        self._over.add(name)
        if not self._error:
            self._let_in_those_after(name)
        if self._register:
            self._register.left()

    def _fail(self, error: BaseException) -> None:
        """Let nobody start any more, and the running ones end soon.

        After Ctrl-C the thread that waits calls it, without the turn lock.
        """
        self._stop.set()
        self._error = self._error or error
        for _ in range(self._ready.drop()):
            if self._register:
                self._register.left()

    def _let_in_those_after(self, name: str) -> None:
        for other in self._waiting.get(name, ()):
            self._missing[other] -= 1
            if not self._missing[other]:
                self._make_ready(other)
        while self._leading < len(self._order) and self._order[self._leading] in self._over:
            self._leading += 1
        self._let_in_those_for_everyone()

    def _let_in_those_for_everyone(self) -> None:
        while self._for_everyone and self._rank[self._for_everyone[-1]] <= self._leading:
            self._make_ready(self._for_everyone.pop())

    def _make_ready(self, name: str, number: int = 0) -> None:
        if self._register:
            self._register.entered()
        self._ready.add((self._rank[name], number))
