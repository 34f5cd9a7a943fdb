"""Which of many threads works: one at a time, in the order in which they came."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")


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
        place = _Place(self)
        if not place.stand_in_line():
            place.called.acquire()

    def take_within(self, seconds: float, *, behind: int | None = None) -> bool:
        """Wait for the turn lock, so long at most; return whether it is this thread's.

        `behind`: so many at most go before.
        """
        place = _Place(self)
        return place.stand_in_line(behind) or place.called.acquire(timeout=seconds) or place.leave()

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


def wait_for(future: Future[T]) -> T:
    """Return the result of a future, or raise its error.

    A thread that let others work stands in line from when the result is there, and is woken when it is
    next. Woken at once, hundreds of threads would fight for the interpreter only to stand in line.
    """
    let_go = getattr(_here, "let_go", None)
    if let_go is None:
        return future.result()
    let_go.pass_on_again()
    place = _Place(let_go.turn_lock)
    try:
        future.add_done_callback(place.come)
        place.called.acquire()
    except BaseException:
        let_go.is_back = place.leave()
        raise
    let_go.is_back = True
    if future.cancelled() or future.exception() is not None:  # others work while it is seen what to do
        let_go.pass_on_again()
    return future.result()


def turn_lock_here() -> TurnLock | None:
    """Return the turn lock that this thread let go; None where it let go none."""
    let_go: _LetGo | None = getattr(_here, "let_go", None)
    return let_go.turn_lock if let_go else None


_here = threading.local()
"""Of a thread that lets others work: `let_go`, which says which turn lock, and whether it has it again."""


class _LetGo:
    """A turn lock that a thread let go, and may have again before the block is over that it let it go for."""

    def __init__(self, turn_lock: TurnLock, outer: _LetGo | None) -> None:
        self.turn_lock, self.outer = turn_lock, outer
        self.is_back = False

    def pass_on_again(self) -> None:
        """Let others work, where the thread has the turn lock again."""
        if self.is_back:
            self.is_back = False
            self.turn_lock.pass_on()


class _Place:
    """Where a thread stands in line."""

    def __init__(self, turn_lock: TurnLock) -> None:
        self._turn_lock = turn_lock
        self._has_left = False
        self.called = threading.Lock()
        self.called.acquire()

    def stand_in_line(self, behind: int | None = None) -> bool:
        """Take the turn lock where nobody has it, and return True; else stand in line for it."""
        turn_lock = self._turn_lock
        with turn_lock._lock:
            if turn_lock._is_held and not self._has_left:
                line = turn_lock._line
                line.insert(len(line) if behind is None else behind, self.call)
                return False
            takes_it = not self._has_left
            turn_lock._is_held = turn_lock._is_held or takes_it
            return takes_it

    def come(self, _: object) -> None:
        """Stand in line for a thread that waits for a future; that has its result now."""
        if self.stand_in_line():
            self.called.release()

    def call(self) -> bool:
        """Wake the thread, which is next; return whether it is still there."""
        with self._turn_lock._lock:
            if not self._has_left:
                self.called.release()
            return not self._has_left

    def leave(self) -> bool:
        """Wait no more; return whether the turn lock is this thread's already."""
        with self._turn_lock._lock:
            self._has_left = True
            return self.called.acquire(blocking=False)


class _Waiting:
    """The time in which who holds the turn lock waits for something else."""

    def __init__(self, turn_lock: TurnLock) -> None:
        self._turn_lock = turn_lock

    def __enter__(self) -> None:
        _here.let_go = _LetGo(self._turn_lock, getattr(_here, "let_go", None))
        self._turn_lock.pass_on()

    def __exit__(self, *_: object) -> None:
        let_go: _LetGo = _here.let_go
        _here.let_go = let_go.outer
        if not let_go.is_back:
            self._turn_lock.take()
