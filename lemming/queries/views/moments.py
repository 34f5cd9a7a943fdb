"""Time of writing of each entry by the local clock, for every part of the page.

An entry written from a recorded answer has the time of the recording, possibly weeks before the tick. Screens
show the local time instead: never earlier than the start of its tick.
"""

from __future__ import annotations

from lemming.kernel.base.errors import CorruptState
from lemming.kernel.journal.journal_file import load_plan
from lemming.kernel.messages import OutboxEntry, may_be_from_turn, parse_identities
from lemming.kernel.org.organisation import Organisation

MAX_TICKS_CACHED = 4096


class TickTimes:
    """Start times of ticks, read once from each journal."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._start_times: dict[int, str] = {}

    def find_local_time(self, entry: OutboxEntry) -> str:
        """Return the local time of writing of an entry, as a timestamp."""
        name = next(iter(parse_identities([entry.identity])), None)
        if name is None or not may_be_from_turn(name):
            return entry.created_at
        return max(entry.created_at, self._load_start(entry.tick))

    def _load_start(self, tick: int) -> str:
        """Return the start time of a tick, or an empty string if no journal contains it."""
        if tick not in self._start_times:
            try:
                plan = load_plan(self._org.base, tick)
            except CorruptState:
                plan = None
            if plan is None:
                return ""
            if len(self._start_times) >= MAX_TICKS_CACHED:
                self._start_times.clear()
            self._start_times[tick] = plan.at
        return self._start_times[tick]
