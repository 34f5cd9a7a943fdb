"""Which of many threads works: one at a time, in the order in which they came."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable


class TurnLock:
    """Held by the one thread that works; `with turn_lock:` works, `with turn_lock.waiting:` lets others work.

    Threads that compute at the same time gain nothing in Python and pay for every change of threads. So who
    passes it on wakes the next in line, which then has it, and nobody else.
    """

    def __init__(self) -> None:
        self.waiting = _Waiting(self)
        self._line: deque[Callable[[], bool]] = deque()
        self._is_held = False
        self._lock = threading.Lock()

    def take(self) -> None:
        """Wait until the turn lock is this thread's."""
        with self._lock:
            if not self._is_held:
                self._is_held = True
                return
            place = _Place()
            self._line.append(place.call)
        place.called.acquire()

    def promise(self, start: Callable[[], bool]) -> None:
        """Call `start` when it is next in line, to begin a thread that has the turn lock. Holder only.

        If `start` returns false, there is no such thread, and the turn lock goes on to the next.
        """
        # Needs no lock: only the holder takes from the line, and that is who calls.
        self._line.append(start)

    def pass_on(self) -> None:
        """Give the turn lock to the next in line. Holder only."""
        while following := self._following():
            if following():
                return

    def _following(self) -> Callable[[], bool] | None:
        with self._lock:
            if self._line:
                return self._line.popleft()
            self._is_held = False
            return None

    def __enter__(self) -> None:
        self.take()

    def __exit__(self, *_: object) -> None:
        self.pass_on()


class _Place:
    """Where a thread stands in line."""

    def __init__(self) -> None:
        self.called = threading.Lock()
        self.called.acquire()

    def call(self) -> bool:
        self.called.release()
        return True


class _Waiting:
    """The time in which who holds the turn lock waits for something else."""

    def __init__(self, turn_lock: TurnLock) -> None:
        self._turn_lock = turn_lock

    def __enter__(self) -> None:
        self._turn_lock.pass_on()

    def __exit__(self, *_: object) -> None:
        self._turn_lock.take()
