"""Wall-clock readings of a tick and of the tick before, from which cron schedules are decided.

Readings are recorded only if the organisation uses clock schedules: this tick's in the journal (`at`,
`since`), the last tick's in `tick.json` (`read_at`), because a tick without turns has no journal.

`.lemming/schedules.json` has the reading at which each schedule was first seen: a new or changed schedule does not catch
up on earlier due times. Without the file, the current schedules count as known.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from lemming.kernel.base import paths
from lemming.kernel.base.clock import is_timestamp, parse_timestamp
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.journal.journal_file import load_plan
from lemming.kernel.org.organisation import Organisation, OrgPath
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


_LIMIT_BYTES = 16 << 20

KnownSchedules = Mapping[str, tuple[str, str]]
"""By agent: the schedule as text, and its first reading; empty if it has always existed."""


def find_first_reading(org: Organisation, name: str, schedule: str, since: str, at: str) -> str:
    """Return the reading after which due times of a schedule count, in a tick with the given readings.

    For a schedule that is new in this tick, the result is `at`, so no due time counts.
    """
    known_schedules = load_known_schedules(org)
    if known_schedules is None or not since:
        return since
    known_schedule, first = known_schedules.get(name, ("", ""))
    return max(since, first) if known_schedule == schedule else at


def load_known_schedules(org: Organisation) -> KnownSchedules | None:
    """Return the recorded schedules, or None without a readable file."""
    try:
        return org.files.get_value(paths.SCHEDULES_FILE, _parse_schedules, limit_bytes=_LIMIT_BYTES)
    except FileNotFoundError:
        return None


def _parse_schedules(raw: bytes) -> KnownSchedules | None:
    try:
        raw_schedules: Any = parse(raw, limit_bytes=_LIMIT_BYTES)
        schedules = {name: (fields["schedule"], fields["since"]) for name, fields in raw_schedules.items()}
    except (JsonProblem, ValueError, TypeError, LookupError, AttributeError):
        return None
    is_valid = all(isinstance(text, str) and (not at or is_timestamp(at)) for text, at in schedules.values())
    return schedules if is_valid else None
