"""The pause between two ticks by the clock, and how many ticks are left to run."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from lemming.kernel.base.deadlines import Deadline, MonotonicClock
from lemming.kernel.journal.report import TickReport
from lemming.kernel.tick.runtime import Runtime


@dataclass
class Timer:
    """Sleeps from the start of one tick to the start of the next."""

    runtime: Runtime
    monotonic: MonotonicClock = time.monotonic
    _since_tick: Deadline = field(default_factory=Deadline)  # how long ago the tick began

    @contextmanager
    def tick(self) -> Iterator[None]:
        """Surround a tick."""
        self._since_tick = Deadline(clock=self.monotonic)
        yield

    def sleep(self, report: TickReport, interval_s: float, most: float) -> int:
        """Sleep after a tick until the next one is to begin, or until the engine is to end.

        Returns how many ticks were slept through. At most `most` more ticks may be counted, the one that is
        run after the sleep among them.
        """
        self.runtime.stop.wait(max(0.0, interval_s - self._since_tick.elapsed()))
        return 0


def ticks_left(tick: int, done: int, max_ticks: int | None, until_tick: int | None) -> float:
    """Return how many ticks may still run, `tick` being the next one and `done` having run.

    >>> ticks_left(5, 3, max_ticks=10, until_tick=6), ticks_left(5, 3, None, None)
    (2, inf)
    """
    by_count = math.inf if max_ticks is None else max_ticks - done
    by_number = math.inf if until_tick is None else until_tick + 1 - tick
    return max(0, min(by_count, by_number))
