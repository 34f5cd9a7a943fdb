"""Fixed pause between two ticks, and the number of ticks left to run."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from lemming.kernel.base.blocking_deadline import Deadline, MonotonicClock
from lemming.kernel.journal.turn_report import TickReport
from lemming.kernel.tick.runtime import Runtime


@dataclass
class IntervalTimer:
    """Sleeps from the start of a tick to the start of the next tick."""

    runtime: Runtime
    monotonic: MonotonicClock = time.monotonic
    _since_tick: Deadline = field(default_factory=Deadline)  # time since the start of the tick

    @contextmanager
    def around_tick(self) -> Iterator[None]:
        """Surround a tick to record its start time."""
        self._since_tick = Deadline(clock=self.monotonic)
        yield

    def sleep(self, report: TickReport, interval_s: float, max_ticks: float) -> int:
        """Sleep after a tick until the next tick is due, or until the engine stops.

        Return the number of missed ticks. At most `max_ticks` further ticks may be counted, including the tick run
        after the sleep.
        """
        self.runtime.stop.wait(max(0.0, interval_s - self._since_tick.elapsed()))
        return 0


def count_remaining_ticks(tick: int, completed: int, max_ticks: int | None, until_tick: int | None) -> float:
    """Return the number of ticks still to run; `tick` is the next tick, `completed` the number of ticks run.

    >>> count_remaining_ticks(5, 3, max_ticks=10, until_tick=6), count_remaining_ticks(5, 3, None, None)
    (2, inf)
    """
    by_count = math.inf if max_ticks is None else max_ticks - completed
    by_number = math.inf if until_tick is None else until_tick + 1 - tick
    return max(0, min(by_count, by_number))
