"""Blocking work of somebody else's, with a deadline: on a daemon thread that is left behind when time is up.

A thread cannot be ended from outside. One that is left behind lives on until its work returns or the process
ends, and nobody looks at what it gives.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar

STOP_GRACE_S = 3.0
"""How long work that is under way may still take once the engine is to end."""

_LOOK_S = 0.1

T = TypeVar("T")


class LeftBehind(Exception):
    """The work was not done in time; it may still come to its end."""


def run_on_thread(
    work: Callable[[], T],
    deadline_s: float,
    *,
    name: str,
    stop: threading.Event | None = None,
    grace_s: float = STOP_GRACE_S,
) -> T:
    """Return what the work returns, or raise what it raises; raise `LeftBehind` when it takes too long.

    That is `deadline_s`, or `grace_s` once `stop` is set.
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
    ends, is_stopping = time.monotonic() + deadline_s, False
    while not done.done():
        if stop is not None and stop.is_set() and not is_stopping:
            ends, is_stopping = min(ends, time.monotonic() + grace_s), True
        left = ends - time.monotonic()
        if left <= 0:
            raise LeftBehind
        try:
            return done.result(left if stop is None else min(left, _LOOK_S))
        except TimeoutError:
            continue  # of the wait, or of the work itself: the next look tells
    return done.result()
