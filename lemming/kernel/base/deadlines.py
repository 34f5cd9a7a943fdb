"""Deadlines as objects that are asked how much time is left, and blocking work under one.

Everything that waits is given a `Deadline`, and a `stop` where the engine may end meanwhile. A deadline is
handed on as it is, never as a number of seconds that was read from it: it may move, and a copy would not.
No other module calls `time.monotonic()` (`tests/test_house_time.py`). How long something took is told by
readings of `time.perf_counter()`.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import copy_context
from typing import TypeVar

STOP_GRACE_S = 3.0
"""How long work that is under way may still take once the engine is to end."""

_LOOK_S, _LONGEST_WAIT_S = 0.1, 60.0

T = TypeVar("T")

MonotonicClock = Callable[[], float]
"""A clock that only goes forward, in seconds, such as `time.monotonic`."""


class Deadline:
    """A moment by which work must be over.

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
        self,
        seconds: float = math.inf,
        *,
        clock: MonotonicClock = time.monotonic,
        outer: Deadline | None = None,
    ) -> None:
        self._clock, self._seconds, self.outer, self._began = clock, seconds, outer, clock()
        self._ends = self._began + seconds

    @classmethod
    def after(cls, seconds: float, *, clock: MonotonicClock = time.monotonic) -> Deadline:
        """Return the deadline `seconds` from now."""
        return cls(seconds, clock=clock)

    def within(self, seconds: float) -> Deadline:
        """Return the deadline of a part of the work: `seconds` from now, and never later than this one."""
        return Deadline(seconds, clock=self._clock, outer=self)

    def remaining(self) -> float:
        """Return the seconds that are left, at least 0; infinity where there is no deadline."""
        left = max(0.0, self._ends - self._clock()) if self._ends < math.inf else math.inf
        return min(left, self.outer.remaining()) if self.outer else left

    @property
    def seconds(self) -> float:
        """How long the work was given in all, for messages."""
        whole = self._ends - self._began
        return min(whole, self.outer.remaining() + self.elapsed()) if self.outer else whole

    def restart(self) -> None:
        """Give the work all of its own seconds from now on: it could not begin before."""
        self._began = self._clock()
        self._ends = self._began + self._seconds

    def elapsed(self) -> float:
        """Return the seconds since the work began."""
        return self._clock() - self._began

    @property
    def has_passed(self) -> bool:
        """Whether the time is over."""
        return self.remaining() <= 0

    def extend(self, seconds: float) -> None:
        """Move this deadline, for work that was held up through no fault of its own.

        The deadlines made by `within` move along, as far as their own seconds allow.
        """
        self._ends += seconds


NEVER = Deadline()
"""No deadline."""


class LeftBehind(Exception):
    """The work was not done in time; it may still come to its end."""


def wait_slices(
    deadline: Deadline, stop: threading.Event | None = None, *, grace_s: float = STOP_GRACE_S
) -> Iterator[float]:
    """Yield the time to wait before each next look, until the deadline has passed.

    The slices are short where there is a `stop`; once it is set, at most `grace_s` are left.
    """
    is_stopping = False
    while True:
        if stop is not None and stop.is_set() and not is_stopping:
            deadline, is_stopping = deadline.within(grace_s), True
        left = deadline.remaining()
        if left <= 0:
            return
        yield min(left, _LONGEST_WAIT_S if stop is None else _LOOK_S)


def run_on_thread(
    work: Callable[[], T],
    deadline: Deadline,
    *,
    name: str,
    stop: threading.Event | None = None,
    grace_s: float = STOP_GRACE_S,
) -> T:
    """Return the result of blocking work, or raise its error. Raise `LeftBehind` when it takes too long.

    The work runs on a daemon thread. It may take until the deadline, and `grace_s` once `stop` is set. A
    thread cannot be ended from outside: one that is left behind lives on until its work returns or the
    process ends, and its result is not looked at.
    """
    from concurrent.futures import Future  # brings `logging` along: only where work is really run

    done: Future[T] = Future()
    context = copy_context()

    def body() -> None:
        try:
            done.set_result(context.run(work))
        except BaseException as error:  # noqa: BLE001 - carried over to the thread that waits
            done.set_exception(error)

    threading.Thread(target=body, name=name, daemon=True).start()
    for seconds in wait_slices(deadline, stop, grace_s=grace_s):
        try:
            return done.result(seconds)
        except TimeoutError:
            if done.done():
                break  # it is the work's own
    if not done.done():
        raise LeftBehind
    return done.result()
