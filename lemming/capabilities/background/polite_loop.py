"""An event loop that takes its turn among the threads that work, and does not fight them for the interpreter.

Python runs one thread at a time. A loop that wakes up while a turn works has it change threads at each file
that the turn writes, a dozen times a turn; that took as much CPU as the call itself. So before the loop
handles what has come in, it stands in line for the turn lock, for a short while at most: it owes no turn
anything, and what it is late with only waits.
"""

from __future__ import annotations

import asyncio
import selectors
import time

from lemming.kernel.tick.executors.turn_lock import TurnLock

MOST_BEFORE = 20
"""So many turns go before the loop, which then has as much to do at once."""
LONGEST_WAIT_S = 0.1
AFTER_IN_VAIN_S = 1.0
"""For so long the loop does not stand in line again: whoever works may be waiting for the loop."""
LONGEST_HOLD_S = 0.01


class PoliteSelector(selectors.DefaultSelector):
    """Waits for what comes in, and then for the turn lock, if there is one: `turn_lock`."""

    turn_lock: TurnLock | None = None

    def __init__(self) -> None:
        super().__init__()
        self._held: TurnLock | None = None
        self._since, self._in_vain_at = 0.0, -AFTER_IN_VAIN_S

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what has come in, once nobody works, or after a while."""
        has_more_to_do = timeout is not None and timeout <= 0
        if has_more_to_do and self._held and time.perf_counter() < self._since + LONGEST_HOLD_S:
            return super().select(timeout)
        self.let_go()
        events = super().select(timeout)
        now = time.perf_counter()
        if self.turn_lock and now > self._in_vain_at + AFTER_IN_VAIN_S:
            if self.turn_lock.take_within(LONGEST_WAIT_S, behind=MOST_BEFORE):
                self._held, self._since = self.turn_lock, time.perf_counter()
            else:
                self._in_vain_at = time.perf_counter()
        return events

    def let_go(self) -> None:
        """Let others work."""
        if self._held:
            self._held.pass_on()
            self._held = None


def new_loop(selector: PoliteSelector) -> asyncio.AbstractEventLoop:
    """Return a loop that waits in this selector."""
    return asyncio.SelectorEventLoop(selector)
