"""Which turns wrote the entries that a turn was shown: their ids say who wrote them, and in which tick."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b

from lemming.kernel.base.errors import CorruptState
from lemming.kernel.base.jsontext import compact
from lemming.kernel.journal.file import read_plan
from lemming.kernel.journal.records import TickStarted
from lemming.kernel.messages import entry_id
from lemming.kernel.org.organisation import OrgPath
from lemming.timeline.record import TurnRecord

LOOKED_BACK = 32
"""Of so many ticks the entries are known by their ids; what is older was rarely new to anybody."""

ENTRIES_OF_A_TURN = 8
"""So many of the entries of each turn."""


def trace_id_of(plan: TickStarted) -> bytes:
    """Return what names a tick everywhere and for ever: made of the first record of its journal.

    That has the moment and the machine's uptime: a copy of an organisation, and a fork as far as it shares
    the past, has the same ids; ticks that only have the same number have others.
    """
    return blake2b(compact(plan.as_json()), digest_size=16).digest()


def span_id_of(trace: bytes, *parts: object) -> bytes:
    """Return what names one step of a tick."""
    return blake2b("/".join(map(str, parts)).encode(), key=trace, digest_size=8).digest()


class Sources:
    """Finds the turns that wrote entries. Ticks that are asked about one after another are looked at once."""

    def __init__(self, base: OrgPath) -> None:
        self._base, self._latest = base, -1
        self._plan = lru_cache(2 * LOOKED_BACK)(self._read_plan)
        self._authors_of = lru_cache(2 * LOOKED_BACK)(self._read_authors)

    def note(self, tick: int) -> None:
        """Take note of a tick whose turns are asked about; after a rewind one comes again, and is another."""
        if tick <= self._latest:
            self._plan.cache_clear()
            self._authors_of.cache_clear()
        self._latest = tick

    def of(self, turn: TurnRecord) -> Iterator[tuple[bytes, bytes]]:
        """Yield the trace and the span of each turn that wrote what a turn was shown as new, each once."""
        wanted, found = set(turn.shown), set[tuple[int, str]]()
        for tick in range(turn.tick, max(-1, turn.tick - LOOKED_BACK), -1):
            if not wanted:
                break
            authors = self._authors_of(tick)
            here = wanted & authors.keys()
            wanted -= here
            found |= {(tick, authors[identity]) for identity in here}
        for tick, author in sorted(found):
            plan = self._plan(tick)
            if plan is not None and author in plan.order and (tick, author) != (turn.tick, turn.agent):
                trace = trace_id_of(plan)
                yield trace, span_id_of(trace, author)

    def _read_authors(self, tick: int) -> dict[str, str]:
        """Return who of a tick's turns has written entries of which ids, written or not."""
        plan = self._plan(tick)
        order = plan.order if plan else ()
        return {entry_id(tick, it, index): it for it in order for index in range(ENTRIES_OF_A_TURN)}

    def _read_plan(self, tick: int) -> TickStarted | None:
        try:
            return read_plan(self._base, tick)
        except CorruptState:  # of another tick than the one that was asked for: it goes without
            return None
