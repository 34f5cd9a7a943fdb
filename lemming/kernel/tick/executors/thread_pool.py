"""Thread pool that keeps idle threads for reuse: starting a thread costs as much as part of a turn."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import lru_cache

Work = Callable[[], None]
KEEP_ALIVE_S = 10.0


class Pool:
    """Running threads, and idle threads kept for `keep_alive_s` seconds.

    The threads are daemons: hanging work does not keep the process alive.
    """

    def __init__(self, keep_alive_s: float = KEEP_ALIVE_S) -> None:
        self._keep_alive_s = keep_alive_s
        self._idle: dict[_Worker, None] = {}

    def start(self, work: Work) -> None:
        """Run `work`, which must not raise, on an idle or new thread."""
        try:
            # One step for the interpreter, so no two callers get the same thread.
            worker, _ = self._idle.popitem()
        except KeyError:
            _Worker(self._idle, self._keep_alive_s, work).start()
        else:
            worker.assign(work)


class _Worker(threading.Thread):
    def __init__(self, idle: dict[_Worker, None], keep_alive_s: float, work: Work) -> None:
        super().__init__(name="lemming-turn", daemon=True)
        self._idle, self._keep_alive_s, self._work = idle, keep_alive_s, work
        self._wake_lock = threading.Lock()
        self._wake_lock.acquire()

    def assign(self, work: Work) -> None:
        self._work = work
        self._wake_lock.release()

    def run(self) -> None:
        while True:
            self._work()
            del self._work  # and whatever it refers to
            self._idle[self] = None
            if not self._wake_lock.acquire(timeout=self._keep_alive_s):
                if self._idle.pop(self, self) is None:  # no other unit has taken this thread meanwhile
                    return
                self._wake_lock.acquire()  # it was chosen as its time ran out: work is coming


def get_pool() -> Pool:
    """Return the thread pool of this process; a forked process gets a new pool."""
    return _make_pool(os.getpid())


@lru_cache(maxsize=1)
def _make_pool(process: int) -> Pool:
    return Pool()
