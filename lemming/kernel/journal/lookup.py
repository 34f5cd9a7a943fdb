"""What is looked for in the records of a tick: its plan, how a turn began and ended, how far it has come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lemming.kernel.journal.records import (
    ModelReserved,
    Record,
    TickStarted,
    TurnEnded,
    TurnResumed,
    TurnStarted,
)


def start_and_end(records: Iterable[Record]) -> tuple[TurnStarted | None, TurnEnded | None]:
    """Return how a turn began and how it ended, from the records about it; None for what they do not tell."""
    started: TurnStarted | None = None
    ended: TurnEnded | None = None
    for record in records:
        if isinstance(record, TurnStarted):
            started = record
        elif isinstance(record, TurnEnded):
            ended = record
    return started, ended


def plan_in(records: Sequence[Record]) -> TickStarted | None:
    """Return the plan among the records of a journal, which is the first; None when there is none yet."""
    first = records[0] if records else None
    return first if isinstance(first, TickStarted) else None


def attempts_without_progress(records: Iterable[Record]) -> int:
    """Return how often a turn was begun since it last came any further, by the records about it."""
    count = 0
    for record in records:
        if not isinstance(record, ModelReserved):  # whose call may be what ends the engine
            count = count + 1 if isinstance(record, (TurnStarted, TurnResumed)) else 0
    return count


def may_have_gone_down(plan: TickStarted | None, boot_id: str) -> bool:
    """Return whether the machine may have gone down since a journal was begun with this plan."""
    return plan is None or not boot_id or plan.boot != boot_id  # without an id nobody can rule it out
