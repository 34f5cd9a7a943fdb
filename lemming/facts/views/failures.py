"""How often an agent has failed in a row, from the journals: a tick that is over is looked at once."""

from __future__ import annotations

import re
from itertools import takewhile

from lemming.errors import CorruptState
from lemming.journal.file import journal_ticks, raw_journal
from lemming.org.organisation import Organisation

MOST_TICKS = 50
_FAILED = re.compile(
    rb'^\{"type":"turn_(?:committed|skipped)","epoch":\d+,"agent":"([a-z0-9_-]+)","status":"(\w+)"',
    re.MULTILINE,
)


class EndsOfTurns:
    """How the turns of recent ticks ended, by agent: `org.own(EndsOfTurns)`."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._ends: dict[int, dict[str, str]] = {}

    def failures_in_a_row(self, agent: str, before: int) -> int:
        """Return how many turns of an agent failed in a row before a tick, as far as is looked back."""
        ticks = [tick for tick in journal_ticks(self._org, with_sealed=False) if tick < before][-MOST_TICKS:]
        self._ends = {tick: self._ends.get(tick) or self._read(tick) for tick in ticks}
        ends = (self._ends[tick].get(agent) for tick in reversed(ticks))
        return sum(1 for _ in takewhile(lambda end: end == "failed", filter(None, ends)))

    def _read(self, tick: int) -> dict[str, str]:
        try:
            raw = raw_journal(self._org, tick)
        except CorruptState:
            return {}
        return {found[1].decode(): found[2].decode() for found in _FAILED.finditer(raw)}
