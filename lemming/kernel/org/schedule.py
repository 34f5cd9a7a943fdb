"""Scheduling: the ticks in which an agent fires, and the order of agents. Pure arithmetic on ticks.

Formulas: architecture guide, "Scheduling & Execution". Cron expressions are interpreted by a capability.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from lemming.kernel.base.times import zone_error
from lemming.kernel.files.fast_decoder import make_field
from lemming.kernel.plugins.capability_loader import missing_reason
from lemming.kernel.plugins.capability_spec import load_object
from lemming.kernel.plugins.capability_table import declared_keys

Wake = Literal["always", "changed", "addressed"]


@dataclass(frozen=True, kw_only=True)
class AgentSchedule:
    """Interval of an agent's turns in ticks, and the offset of the interval."""

    run_every_n_ticks: int = make_field(1, "The agent is due when (tick + phase_offset) is divisible by this.", ge=1)
    phase_offset: int = make_field(0, "Shift in ticks; it also sets the order inside a tick.")
    wake: Wake | None = make_field(
        None,
        '"changed": take a turn only if an input has changed since the last one; "addressed": only '
        'if the agent is asked, answered or addressed by name; "always": whenever due. Default: '
        'that of config/org.json, else "always".',
    )
    cron: str | None = make_field(
        None,
        'Cron expression: "0 9 * * mon-fri" (minute, hour, day, month, weekday), or @hourly, '
        "@daily, @weekly, @monthly, @yearly. With run_every_n_ticks above 1, both must hold.",
    )
    timezone: str | None = make_field(
        None, "Time zone of cron and clock, such as Europe/Berlin. Default: that of config/org.json."
    )
    missed: Literal["once", "skip"] = make_field(
        "once", 'Missed times. "once": one turn for all of them; "skip": only for those younger than grace_minutes.'
    )
    grace_minutes: float = make_field(60.0, 'Maximum delay in minutes, with "missed": "skip".', ge=0, le=1e6)


def find_time_problems(schedule: AgentSchedule) -> Iterator[tuple[str, str, str]]:
    """Yield the key, the violation, and the suggested value for each invalid key."""
    for key, (name, import_path) in declared_keys("schedule").items():
        if (value := getattr(schedule, key)) is not None:
            missing = missing_reason(name)
            problem = (missing, "remove the key, or install lemming-engine again") if missing else None
            if problem := problem or load_object(import_path)(value):
                yield key, *problem
    if schedule.timezone is not None and (error := zone_error(schedule.timezone)):
        yield "timezone", *error


def is_due(schedule: AgentSchedule, tick: int) -> bool:
    """Return True if the schedule fires at this tick.

    >>> is_due(AgentSchedule(), 10), is_due(AgentSchedule(run_every_n_ticks=3, phase_offset=1), 10)
    (True, False)
    """
    return (tick + schedule.phase_offset) % schedule.run_every_n_ticks == 0


def next_due(schedule: AgentSchedule, tick: int) -> int:
    """Return the first tick at or after `tick` at which the schedule fires.

    >>> next_due(AgentSchedule(run_every_n_ticks=4, phase_offset=1), 4)
    7
    """
    return tick + (-(tick + schedule.phase_offset)) % schedule.run_every_n_ticks


def fire_point(schedule: AgentSchedule) -> float:
    """Return the position inside a tick, in [0, 1), at which an agent with this schedule fires.

    Formula: architecture guide, "Fire Point Calculation".

    >>> [fire_point(AgentSchedule(run_every_n_ticks=4, phase_offset=n)) for n in range(4)]
    [0.0, 0.75, 0.5, 0.25]
    """
    return ((-schedule.phase_offset) % schedule.run_every_n_ticks) / schedule.run_every_n_ticks
