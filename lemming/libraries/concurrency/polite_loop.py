"""Event loop that takes turns with working threads rather than competing for the interpreter.

Python runs one thread at a time. A loop that wakes up during a turn forces a thread switch at each written
file, a dozen per turn; the switches cost as much CPU as the call itself. So before handling events, the loop
waits for the turn lock, for a short time at most: late events of the loop only wait longer.
"""

from __future__ import annotations

import asyncio
import selectors
import time

from lemming.kernel.tick.executors.turn_lock import TurnLock

MAX_TURNS_AHEAD = 20
"""Maximum turns that go before the loop, which then has all the more to do."""
MAX_WAIT_S = 0.1
RETRY_AFTER_S = 1.0
"""Seconds before the loop queues again: the working thread may be waiting for the loop."""
MAX_HOLD_S = 0.01


class PoliteSelector(selectors.DefaultSelector):
    """Selector that waits for events, then for the turn lock, if any: `turn_lock`."""

    turn_lock: TurnLock | None = None

    def __init__(self) -> None:
        super().__init__()
        self._acquired: TurnLock | None = None
        self._acquired_at, self._failed_at = 0.0, -RETRY_AFTER_S

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the events once no turn works, or after a short wait."""
        is_busy = timeout is not None and timeout <= 0
        if is_busy and self._acquired and time.perf_counter() < self._acquired_at + MAX_HOLD_S:
            return super().select(timeout)
        self.release()
        events = super().select(timeout)
        current_time = time.perf_counter()
        if self.turn_lock and current_time > self._failed_at + RETRY_AFTER_S:
            if self.turn_lock.acquire_with_timeout(MAX_WAIT_S, behind=MAX_TURNS_AHEAD):
                self._acquired, self._acquired_at = self.turn_lock, time.perf_counter()
            else:
                self._failed_at = time.perf_counter()
        return events

    def release(self) -> None:
        """Release the turn lock for other threads."""
        if self._acquired:
            self._acquired.release()
            self._acquired = None


def make_event_loop(selector: PoliteSelector) -> asyncio.AbstractEventLoop:
    """Return an event loop with this selector."""
    return asyncio.SelectorEventLoop(selector)
