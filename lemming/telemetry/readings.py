"""The journals of some ticks one after another, and those to come: how traces and events follow an engine."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import NamedTuple

from lemming import paths
from lemming.journal.file import JournalContents, journal_ticks, newest_journals, prompts_in, reading_of
from lemming.journal.records import TickCommitted
from lemming.organisation import Organisation
from lemming.timeline import TickSpan

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
    latest, known, reading = span.first - 1, Stamp(), JournalContents([])
    prompts = prompts_in(org)
    is_first_look = True
    while True:
        for tick in journal_ticks(org, with_sealed=is_first_look):
            stamp = _stamp(org, tick)
            if tick < latest or tick not in span or (tick == latest and stamp == known):
                continue
            latest, known, reading = tick, stamp, reading_of(org, tick, prompts=prompts)
            yield tick, reading
        is_first_look = False
        is_at_end = span.last is not None and latest >= span.last and is_over(reading)
        if stop is None or is_at_end or stop.wait(LOOK_S):
            return
        newest = newest_journals(org, 1)
        if newest and newest[0] < latest:  # brought back by `lemming rewind`: its ticks are run anew
            latest, known = newest[0], Stamp()


class Stamp(NamedTuple):
    """What tells a journal that has grown from one that has not."""

    inode: int = 0
    size_bytes: int = 0


def _stamp(org: Organisation, tick: int) -> Stamp:
    try:
        found = os.stat(org / paths.journal_file(tick))
    except FileNotFoundError:  # packed: it grows no more
        return Stamp()
    return Stamp(found.st_ino, found.st_size)
