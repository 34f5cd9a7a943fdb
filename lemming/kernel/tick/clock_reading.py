"""A tick's reading of the wall clock, and that of the tick before it: what cron schedules are decided from.

They are kept only where something in the organisation goes by the clock: this tick's in the journal (`at`,
`since`), the last tick's in `tick.json` (`read_at`), as a tick without turns has no journal.
"""

from __future__ import annotations

from datetime import timedelta

from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.base.errors import Problem
from lemming.kernel.journal.file import read_plan
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.counter import load_counter
from lemming.kernel.tick.firing_plan import Plan

BELIEVED_AHEAD = timedelta(days=1)
"""Set back by less, the clock is waited for: nothing is due twice. By more, it had been wrong before."""


def previous_reading(base: OrgPath, tick: int, ticks: list[int]) -> str:
    """Return the reading up to which the ticks before this one have seen to what was due; empty: none has.

    `ticks` are those with a journal of their own. `tick.json` may be behind them: after power loss, and
    where `run_tick` leaves it alone.
    """
    counted, read_at = load_counter(base)
    before = next((at for at in reversed(ticks) if at < tick), -1)
    if before < counted:  # quiet ticks ran since, and have no journal
        return read_at
    started = read_plan(base, before)
    plan = Plan.of(started) if started else None
    return next_reading(plan) if plan and plan.at else read_at


def next_reading(plan: Plan) -> str:
    """Return the reading that a tick leaves to the next one.

    Where it left out agents that were due by the clock, that is the reading it started from.
    """
    return plan.since if plan.left_out and plan.since else kept_reading(plan.at, plan.since)


def kept_reading(at: str, since: str) -> str:
    """Return what a tick leaves to the next one: its own reading, or a later one before it.

    >>> kept_reading("2026-11-23T08:00:00.000Z", "2026-11-23T09:00:00.000Z")
    '2026-11-23T09:00:00.000Z'
    >>> kept_reading("2026-11-23T08:00:00.000Z", "2030-01-01T00:00:00.000Z")
    '2026-11-23T08:00:00.000Z'
    """
    return since if at and since > at and _behind(at, since) <= BELIEVED_AHEAD else at


def _behind(at: str, since: str) -> timedelta:
    return parse_timestamp(since) - parse_timestamp(at)


def set_back_text(at: str, since: str) -> Problem | None:
    """Return what a person is told when a tick's reading is before that of the tick before; None if not."""
    if not since or at >= since:
        return None
    what = "until the clock is there again" if kept_reading(at, since) == since else "in this tick"
    return Problem(
        f"the clock was set back, from {since} to {at}: nobody is due by the clock {what}",
        hint="see to the machine's clock; nothing is made up for twice",
        severity="warning",
    )
