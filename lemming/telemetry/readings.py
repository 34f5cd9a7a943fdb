"""The journals of some ticks one after another, and those to come: how traces and events follow an engine.

Events are the values that observers of the engine were told. What no journal keeps is missing:
problems, sleep, how far a batch has come, answers as they were written.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from lemming.engine import report_of
from lemming.kernel.base import paths
from lemming.kernel.journal.events import Event, TickBegins, TickEnds
from lemming.kernel.journal.file import (
    JournalContents,
    journal_ticks,
    newest_journals,
    prompts_in,
    reading_of,
)
from lemming.kernel.journal.records import Record, TickCommitted, TickStarted
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.firing_plan import Plan
from lemming.timeline.tick_spans import TickSpan

LOOK_S = 0.5


def is_over(reading: JournalContents) -> bool:
    """Return whether the tick that a reading tells of has ended."""
    return bool(reading.records) and isinstance(reading.records[-1], TickCommitted)


def from_now_on(org: Organisation) -> TickSpan:
    """Return the ticks that are to come, with the one that is under way or was interrupted."""
    newest = newest_journals(org, 1)
    if not newest:
        return TickSpan(0)
    return TickSpan(newest[0] + is_over(reading_of(org, newest[0])))


def readings(
    org: Organisation, span: TickSpan, *, stop: threading.Event | None = None
) -> Iterator[tuple[int, JournalContents]]:
    """Yield the journals of these ticks, in their order.

    With `stop`, wait for those that are not there yet, until it is set: a tick under way comes again each
    time that its journal has grown. Raises `CorruptState` for a journal that is damaged.
    """
    latest, known, reading = span.first - 1, PACKED, JournalContents([])
    prompts = prompts_in(org)
    while True:
        took_s = 0.0
        for tick in _ticks_from(org, latest):
            stamp = _stamp(org, tick)
            is_known = stamp == known or (stamp == PACKED and is_over(reading))
            if tick < latest or tick not in span or (tick == latest and is_known):
                continue
            began = time.perf_counter()
            latest, known, reading = tick, stamp, reading_of(org, tick, prompts=prompts)
            took_s += time.perf_counter() - began
            yield tick, reading
        is_at_end = span.last is not None and latest >= span.last and is_over(reading)
        # The journal of a large tick takes a while to read: most of the time is left to the engine.
        if stop is None or is_at_end or stop.wait(max(LOOK_S, 3 * took_s)):
            return
        newest = newest_journals(org, 1)
        if newest and newest[0] < latest:  # brought back by `lemming rewind`: its ticks are run anew
            latest, known, reading = newest[0], PACKED, JournalContents([])


def _ticks_from(org: Organisation, first: int) -> list[int]:
    """Return the ticks that have a journal, those that are packed only where one from `first` on may be."""
    plain = journal_ticks(org, with_sealed=False)
    return plain if plain and plain[0] <= first else journal_ticks(org)


class Stamp(NamedTuple):
    """What tells a journal that has grown from one that has not."""

    inode: int = 0
    size_bytes: int = 0


PACKED = Stamp()
"""That of a journal which is no file of its own any more, and grows no more."""


def _stamp(org: Organisation, tick: int) -> Stamp:
    try:
        found = os.stat(org / paths.journal_file(tick))
    except FileNotFoundError:
        return PACKED
    return Stamp(found.st_ino, found.st_size)


def events_in(tick: int, records: Sequence[Record], *, told: int = 0) -> Iterator[Event]:
    """Yield the events of a tick in their order; `told`: so many of its records have been told before.

    A tick that was interrupted begins once here, and its length is that of its answers.
    """
    for record in records[told:]:
        match record:
            case TickStarted():
                yield TickBegins(**Plan.of(record).as_json())
                yield record
            case TickCommitted():
                yield record
                yield TickEnds(report=replace(report_of(tick, records), was_recorded=False))
            case _:
                yield record
