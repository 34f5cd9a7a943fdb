"""The moment at which something was said here, by one clock for every part of the page.

An entry that a turn wrote from a recorded answer bears the moment of the recording, which may be weeks before
the tick. Screens show when it was said here: never before its tick began.
"""

from __future__ import annotations

from lemming.kernel.base.errors import CorruptState
from lemming.kernel.journal.file import read_plan
from lemming.kernel.messages import OutboxEntry, may_be_of_a_turn, names_of
from lemming.kernel.org.organisation import Organisation

TICKS_REMEMBERED = 4096


class TickTimes:
    """When the ticks of an organisation began, as their journals say; read once for each tick."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._began: dict[int, str] = {}

    def find_moment(self, entry: OutboxEntry) -> str:
        """Return the moment at which an entry was said here, as a timestamp."""
        name = next(iter(names_of([entry.identity])), None)
        if name is None or not may_be_of_a_turn(name):
            return entry.created_at
        return max(entry.created_at, self._load_start(entry.tick))

    def _load_start(self, tick: int) -> str:
        """Return the moment at which a tick began; empty if no journal tells."""
        if tick not in self._began:
            try:
                plan = read_plan(self._org.base, tick)
            except CorruptState:
                plan = None
            if plan is None:
                return ""
            if len(self._began) >= TICKS_REMEMBERED:
                self._began.clear()
            self._began[tick] = plan.at
        return self._began[tick]
