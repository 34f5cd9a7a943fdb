"""What observers of an engine were told of a tick, told again from its journal: the same values.

What no journal keeps is missing: problems, sleep, how far a batch has come, answers as they were written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from lemming.engine import report_of
from lemming.journal.events import Event, TickBegins, TickEnds
from lemming.journal.records import Record, TickCommitted, TickStarted
from lemming.tick.plan import Plan


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
