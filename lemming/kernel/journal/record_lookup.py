"""Lookups in the records of a tick: the plan, the start, end and progress of a turn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lemming.kernel.journal.journal_records import (
    ModelReserved,
    ModelStarted,
    Record,
    TickStarted,
    TurnEnded,
    TurnResumed,
    TurnStarted,
)


def find_start_and_end(records: Iterable[Record]) -> tuple[TurnStarted | None, TurnEnded | None]:
    """Return the start and end records of a turn from the turn's records; None for a missing record."""
    started: TurnStarted | None = None
    ended: TurnEnded | None = None
    for record in records:
        if isinstance(record, TurnStarted):
            started = record
        elif isinstance(record, TurnEnded):
            ended = record
    return started, ended


def find_plan(records: Sequence[Record]) -> TickStarted | None:
    """Return the plan among the records of a journal, or None. The plan is the first record."""
    first = records[0] if records else None
    return first if isinstance(first, TickStarted) else None


def attempts_without_progress(records: Iterable[Record]) -> int:
    """Return the number of times a turn was started since its last progress, from the turn's records."""
    count = 0
    for record in records:
        # A call about to start is no progress: it may be what kills the engine.
        if not isinstance(record, (ModelReserved, ModelStarted)):
            count = count + 1 if isinstance(record, (TurnStarted, TurnResumed)) else 0
    return count


def may_have_rebooted(plan: TickStarted | None, boot_id: str) -> bool:
    """Return True if the machine may have rebooted since the journal with this plan was started."""
    return plan is None or not boot_id or plan.boot != boot_id  # without an id it cannot be ruled out
