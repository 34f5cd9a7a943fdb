"""Which turns wrote the entries that a turn was shown: their ids say who wrote them, and in which tick."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import TypeVar

from lemming.base.jsontext import compact
from lemming.errors import CorruptState
from lemming.journal.file import read_plan
from lemming.journal.records import TickStarted
from lemming.messages import entry_id
from lemming.org.organisation import OrgPath
from lemming.timeline.record import RecordedTick, TurnRecord

T = TypeVar("T")

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
        self._base = base
        self._plans: OrderedDict[int, TickStarted | None] = OrderedDict()
        self._authors: OrderedDict[int, dict[str, str]] = OrderedDict()

    def note(self, tick: RecordedTick) -> None:
        """Take note of the plan of a tick, which then need not be read."""
        _keep(self._plans, tick.tick, tick.begin)

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

    def _authors_of(self, tick: int) -> dict[str, str]:
        """Return who of a tick's turns has written entries of which ids, written or not."""
        if tick not in self._authors:
            plan = self._plan(tick)
            _keep(self._authors, tick, dict(_ids(tick, plan.order if plan else ())))
        return self._authors[tick]

    def _plan(self, tick: int) -> TickStarted | None:
        if tick not in self._plans:
            try:
                plan = read_plan(self._base, tick)
            except CorruptState:  # of another tick than the one that was asked for: it goes without
                plan = None
            _keep(self._plans, tick, plan)
        return self._plans[tick]


def _ids(tick: int, authors: Iterable[str]) -> Iterator[tuple[str, str]]:
    for author in authors:
        for index in range(ENTRIES_OF_A_TURN):
            yield entry_id(tick, author, index), author


def _keep(known: OrderedDict[int, T], tick: int, value: T) -> None:
    known[tick] = value
    while len(known) > 2 * LOOKED_BACK:
        known.popitem(last=False)
