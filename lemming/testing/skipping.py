"""A clock for tests of slow models that skips waits but lets deadlines pass.

>>> import tempfile
>>> from pathlib import Path
>>> from lemming.engine import run_once
>>> from lemming.testing import make_org, resume, say
>>> slow = dict(reply=say("at last"), delay_s=600)
>>> base = make_org(Path(tempfile.mkdtemp()), resume("ada", turn={"deadline_s": 60}), script=[slow])
>>> run_once(base, clock=SkippingClock()).turns[0].reason
"the turn's time, 60 s, is over"
"""

from __future__ import annotations

import threading
from datetime import datetime

from lemming.kernel.base.blocking_deadline import Deadline
from lemming.kernel.base.clock import FrozenClock


class SkippingClock(FrozenClock):
    """A frozen clock that skips the waits of model calls.

    The `delay_s` of a scripted answer and the pauses between attempts advance `monotonic` without taking
    time. Work in real time counts as well, so a hanging tool still times out. The time of day stands still.
    """

    def __init__(self, start: datetime | None = None, *, boot_id: str = "") -> None:
        super().__init__(start, boot_id=boot_id)
        self._real, self._skipped_s, self._lock = Deadline(), 0.0, threading.Lock()

    def monotonic(self) -> float:
        """Return the seconds since the creation of the clock, including skipped seconds."""
        return self._real.elapsed() + self._skipped_s

    def pause(self, seconds: float) -> None:
        """Skip the given seconds."""
        with self._lock:
            self._skipped_s += seconds
