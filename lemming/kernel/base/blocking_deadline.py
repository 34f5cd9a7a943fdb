"""Deadlines as objects with a remaining time, and blocking work under a deadline.

Every wait takes a `Deadline`, and a `stop` event if the engine may end meanwhile. A deadline is passed on as
an object, never as a number of seconds read from it: it may move, and a copy would not. No other module calls
`time.monotonic()` (`tests/test_house_time.py`). Durations are measured with `time.perf_counter()`.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import copy_context
from typing import TypeVar

STOP_GRACE_S = 3.0
"""Seconds for running work after the engine is asked to end."""

_POLL_S, _MAX_WAIT_S = 0.1, 60.0

T = TypeVar("T")

MonotonicClock = Callable[[], float]
"""A clock that only goes forward, in seconds, such as `time.monotonic`."""


class Deadline:
    """A time by which work must be finished.

    >>> now = 100.0
    >>> turn = Deadline(10.0, clock=lambda: now)
    >>> call = turn.within(60.0)
    >>> call.remaining()
    10.0
    >>> now = 109.0
    >>> turn.extend(5.0)
    >>> (turn.remaining(), call.remaining(), call.has_passed)
    (6.0, 6.0, False)
    """

    __slots__ = ("_began", "_clock", "_ends", "_seconds", "outer")

    def __init__(
        self, seconds: float = math.inf, *, clock: MonotonicClock = time.monotonic, outer: Deadline | None = None
    ) -> None:
        self._clock, self._seconds, self.outer, self._began = clock, seconds, outer, clock()
        self._ends = self._began + seconds

    def within(self, seconds: float) -> Deadline:
        """Return a deadline for a part of the work: `seconds` from now, and never later than this deadline."""
        return Deadline(seconds, clock=self._clock, outer=self)

    def remaining(self) -> float:
        """Return the remaining seconds, at least 0; infinity without a deadline."""
        remaining_s = max(0.0, self._ends - self._clock()) if self._ends < math.inf else math.inf
        return min(remaining_s, self.outer.remaining()) if self.outer else remaining_s

    @property
    def seconds(self) -> float:
        """Total time given to the work in seconds, for messages."""
        total_s = self._ends - self._began
        return min(total_s, self.outer.remaining() + self.elapsed()) if self.outer else total_s

    def restart(self) -> None:
        """Restart the work's own time from now, for work that could not start earlier."""
        self._began = self._clock()
        self._ends = self._began + self._seconds

    def elapsed(self) -> float:
        """Return the seconds since the work began."""
        return self._clock() - self._began

    @property
    def has_passed(self) -> bool:
        """True if the time is over."""
        return self.remaining() <= 0

    def extend(self, seconds: float) -> None:
        """Extend this deadline, for work delayed through no fault of its own.

        Deadlines made by `within` move along, as far as their own seconds allow.
        """
        self._ends += seconds


NEVER = Deadline()
"""No deadline."""


class WorkAbandoned(Exception):
    """Raised when work is not finished in time; the work may still finish later."""


def wait_slices(
    deadline: Deadline, stop: threading.Event | None = None, *, grace_s: float = STOP_GRACE_S
) -> Iterator[float]:
    """Yield the durations of successive waits until the deadline has passed.

    With a `stop` event, the waits are short; once `stop` is set, at most `grace_s` seconds remain.
    """
    is_stopping = False
    while True:
        if stop is not None and stop.is_set() and not is_stopping:
            deadline, is_stopping = deadline.within(grace_s), True
        remaining_s = deadline.remaining()
        if remaining_s <= 0:
            return
        yield min(remaining_s, _MAX_WAIT_S if stop is None else _POLL_S)


def run_on_thread(work: Callable[[], T], deadline: Deadline, *, name: str, stop: threading.Event | None = None) -> T:
    """Return the result of blocking work, or raise the error. Raise `WorkAbandoned` if it takes too long.

    The work runs on a daemon thread. It may take until the deadline, and `STOP_GRACE_S` seconds once `stop`
    is set. A thread cannot be ended from outside: an abandoned thread lives on until its work returns or the
    process ends, and the result is ignored.
    """
    from concurrent.futures import Future  # brings `logging` along: only where work is really run

    future: Future[T] = Future()
    context = copy_context()

    def run_work() -> None:
        try:
            future.set_result(context.run(work))
        except BaseException as error:  # noqa: BLE001 - carried over to the thread that waits
            future.set_exception(error)

    threading.Thread(target=run_work, name=name, daemon=True).start()
    for seconds in wait_slices(deadline, stop):
        try:
            return future.result(seconds)
        except TimeoutError:
            if future.done():
                break  # it is the work's own
    if not future.done():
        raise WorkAbandoned
    return future.result()
