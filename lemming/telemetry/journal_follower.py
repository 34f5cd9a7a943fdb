"""Iterate over journals of past and coming ticks, as traces and events need to follow an engine.

Events equal the values sent to observers of the engine, except events that no journal records: problems,
sleep, batch progress, text deltas of answers.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from lemming.engine import build_report
from lemming.journal_tools.tick_ranges import TickRange
from lemming.kernel.base import paths
from lemming.kernel.base.aliases import accept_old_keywords
from lemming.kernel.journal.engine_events import Event, TickBegins, TickEnds
from lemming.kernel.journal.journal_file import journal_ticks, load_contents, make_prompt_reader
from lemming.kernel.journal.journal_parser import JournalContents
from lemming.kernel.journal.journal_records import Record, TickCommitted, TickStarted
from lemming.kernel.journal.tick_plan import TickPlan
from lemming.kernel.org.organisation import Organisation
from lemming.read_model.journal_ticks import newest_journals

POLL_S = 0.5


def is_finished(reading: JournalContents) -> bool:
    """Return True if the tick of a journal has ended."""
    return bool(reading.records) and isinstance(reading.records[-1], TickCommitted)


def get_upcoming_ticks(org: Organisation) -> TickRange:
    """Return the range of coming ticks, including a running or interrupted tick."""
    newest = newest_journals(org, 1)
    if not newest:
        return TickRange(0)
    return TickRange(newest[0] + is_finished(load_contents(org, newest[0])))


def iter_journals(
    org: Organisation, span: TickRange, *, stop: threading.Event | None = None
) -> Iterator[tuple[int, JournalContents]]:
    """Yield the journals of the ticks, in order.

    With `stop`, also wait for coming ticks until `stop` is set; a running tick is yielded again after each
    growth of its journal. Raises `CorruptState` for a damaged journal.
    """
    latest, last_stamp, reading = span.first - 1, PACKED, JournalContents([])
    prompts = make_prompt_reader(org)
    while True:
        read_s, ticks = 0.0, journal_ticks(org, with_sealed=False)
        if not ticks or ticks[0] > latest:  # a tick from there on may be packed
            ticks = journal_ticks(org)
        for tick in ticks:
            stamp = _stat_journal(org, tick)
            is_unchanged = stamp == last_stamp or (stamp == PACKED and is_finished(reading))
            if tick < latest or tick not in span or (tick == latest and is_unchanged):
                continue
            began = time.perf_counter()
            latest, last_stamp, reading = tick, stamp, load_contents(org, tick, prompts=prompts)
            read_s += time.perf_counter() - began
            yield tick, reading
        is_at_end = span.last is not None and latest >= span.last and is_finished(reading)
        # The journal of a large tick takes a while to read: most of the time is left to the engine.
        if stop is None or is_at_end or stop.wait(max(POLL_S, 3 * read_s)):
            return
        newest = newest_journals(org, 1)
        if newest and newest[0] < latest:  # brought back by `lemming rewind`: its ticks are run anew
            latest, last_stamp, reading = newest[0], PACKED, JournalContents([])


PACKED = (0, 0)
"""Stamp of a journal which is no file of its own any more, and grows no more."""


def _stat_journal(org: Organisation, tick: int) -> tuple[int, int]:
    """Return the inode and the size of a journal file, to detect growth."""
    try:
        file_stat = os.stat(org / paths.journal_file(tick))
    except FileNotFoundError:
        return PACKED
    return file_stat.st_ino, file_stat.st_size


@accept_old_keywords
def iter_events(tick: int, records: Sequence[Record], *, printed: int = 0) -> Iterator[Event]:
    """Yield the events of a tick in order, skipping the first `printed` records.

    An interrupted tick begins only once here, and its duration is the sum of its answers.
    """
    for record in records[printed:]:
        if isinstance(record, TickStarted):
            yield TickBegins(**TickPlan.from_record(record).as_json())
        yield record
        if isinstance(record, TickCommitted):
            yield TickEnds(report=replace(build_report(tick, records), was_recorded=False))
