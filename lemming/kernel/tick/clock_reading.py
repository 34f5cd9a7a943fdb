"""Wall-clock readings of a tick and of the tick before, from which cron schedules are decided.

Readings are recorded only if the organisation uses clock schedules: this tick's in the journal (`at`,
`since`), the last tick's in `tick.json` (`read_at`), because a tick without turns has no journal.
"""

from __future__ import annotations

from datetime import timedelta

from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.base.errors import Problem
from lemming.kernel.journal.journal_file import load_plan
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.firing_plan import TickPlan
from lemming.kernel.tick.tick_counter import load_counter

BELIEVED_AHEAD = timedelta(days=1)
"""A clock set back by less is waited for, so nothing is due twice. By more, it was wrong before."""


def previous_reading(base: OrgPath, tick: int, ticks: list[int]) -> str:
    """Return the reading up to which earlier ticks handled due schedules; empty before the first reading.

    `ticks` are the ticks with a journal. `tick.json` may be older: after power loss, and if `run_tick` does
    not write the counter.
    """
    counted, read_at = load_counter(base)
    previous_tick = next((at for at in reversed(ticks) if at < tick), -1)
    if previous_tick < counted:  # quiet ticks ran since, and have no journal
        return read_at
    started = load_plan(base, previous_tick)
    plan = TickPlan.from_record(started) if started else None
    return next_reading(plan) if plan and plan.at else read_at


def next_reading(plan: TickPlan) -> str:
    """Return the reading that a tick leaves for the next tick.

    A tick that left out agents due by the clock leaves the reading from its own start.
    """
    return plan.since if plan.left_out and plan.since else later_reading(plan.at, plan.since)


def later_reading(at: str, since: str) -> str:
    """Return the reading a tick leaves for the next tick: its own, or a slightly later previous reading.

    >>> later_reading("2026-11-23T08:00:00.000Z", "2026-11-23T09:00:00.000Z")
    '2026-11-23T09:00:00.000Z'
    >>> later_reading("2026-11-23T08:00:00.000Z", "2030-01-01T00:00:00.000Z")
    '2026-11-23T08:00:00.000Z'
    """
    return since if at and since > at and _clock_setback(at, since) <= BELIEVED_AHEAD else at


def _clock_setback(at: str, since: str) -> timedelta:
    return parse_timestamp(since) - parse_timestamp(at)


def clock_setback_problem(at: str, since: str) -> Problem | None:
    """Return the problem to report if the clock was set back since the last tick, or None."""
    if not since or at >= since:
        return None
    pause_text = "until the clock has passed that time again" if later_reading(at, since) == since else "in this tick"
    return Problem(
        f"the clock was set back, from {since} to {at}: no schedule by the clock is due {pause_text}",
        hint="check the machine's clock; missed turns are made up for only once",
        severity="warning",
    )
