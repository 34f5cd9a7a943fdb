"""Threads that are kept a while for more work: a new one costs as much as a part of a turn."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import lru_cache

Work = Callable[[], None]
KEPT_S = 10.0


class Pool:
    """Threads that work, and those that did and are kept for `kept_s`.

    They are daemons: work that hangs does not keep the process alive.
    """

    def __init__(self, kept_s: float = KEPT_S) -> None:
        self._kept_s = kept_s
        self._idle: dict[_Member, None] = {}

    def start(self, work: Work) -> None:
        """Do work, which must not raise, on a thread that has nothing else to do."""
        try:
            # One step for the interpreter, so no two callers get the same thread.
            member, _ = self._idle.popitem()
        except KeyError:
            _Member(self._idle, self._kept_s, work).start()
        else:
            member.give(work)


class _Member(threading.Thread):
    def __init__(self, idle: dict[_Member, None], kept_s: float, work: Work) -> None:
        super().__init__(name="lemming-turn", daemon=True)
        self._idle, self._kept_s, self._work = idle, kept_s, work
        self._called = threading.Lock()
        self._called.acquire()

    def give(self, work: Work) -> None:
        self._work = work
        self._called.release()

    def run(self) -> None:
        while True:
            self._work()
            del self._work  # and whatever it refers to
            self._idle[self] = None
            if not self._called.acquire(timeout=self._kept_s):
                if self._idle.pop(self, self) is None:  # nobody has chosen this thread meanwhile
                    return
                self._called.acquire()  # it was chosen as its time ran out: work is coming


def pool() -> Pool:
    """Return the threads of this process; a forked one has none of its parent's."""
    return _pool_of(os.getpid())


@lru_cache(maxsize=1)
def _pool_of(process: int) -> Pool:
    return Pool()
