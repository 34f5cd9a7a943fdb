"""When an agent fires and who goes first. Pure arithmetic on ticks.

Formulas: architecture guide, "Scheduling & Execution". What cron means is a capability's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeVar

from lemming.kernel.base.times.zones import why_no_zone
from lemming.kernel.files.fitting import about
from lemming.kernel.plugins.capabilities import wrong_in_schedule

Wake = Literal["always", "changed", "addressed"]


@dataclass(frozen=True, kw_only=True)
class AgentSchedule:
    """Every how many ticks an agent fires, and how far it is shifted."""

    run_every_n_ticks: int = field(
        default=1, metadata=about("Fire when (tick + phase_offset) is divisible by this.", ge=1)
    )
    phase_offset: int = field(
        default=0, metadata=about("Shift in ticks; also places the agent inside the tick.")
    )
    wake: Wake | None = field(
        default=None,
        metadata=about(
            '"changed": fire only if something the turn would read has changed since the last '
            'turn; "addressed": only if something is asked of the agent, answered or said to it by name; '
            '"always": fire whenever due. Default: the org\'s default, else "always".'
        ),
    )
    cron: str | None = field(
        default=None,
        metadata=about(
            'Fire by the clock: "0 9 * * mon-fri" (minute, hour, day, month, weekday), or @hourly, @daily, '
            "@weekly, @monthly, @yearly. With run_every_n_ticks above 1, both must hold."
        ),
    )
    timezone: str | None = field(
        default=None,
        metadata=about("Time zone of cron and clock, such as Europe/Berlin. Default: the org's."),
    )
    missed: Literal["once", "skip"] = field(
        default="once",
        metadata=about(
            'A moment that passed while nothing ran. "once": one turn makes up for all of them; "skip": '
            "only for those younger than grace_minutes."
        ),
    )
    grace_minutes: float = field(
        default=60.0, metadata=about('How late a turn may still come, with "missed": "skip".', ge=0, le=1e6)
    )


def wrong_times(schedule: AgentSchedule) -> Iterator[tuple[str, str, str]]:
    """Yield the key, what is wrong with its value, and what to write instead."""
    yield from wrong_in_schedule(schedule)
    if schedule.timezone is not None and (why := why_no_zone(schedule.timezone)):
        yield "timezone", *why


class Scheduled(Protocol):
    """Anything with a name and a schedule: an `Agent`."""

    @property
    def name(self) -> str:
        """The agent's name."""
        ...

    @property
    def schedule(self) -> AgentSchedule:
        """The agent's schedule."""
        ...


A = TypeVar("A", bound=Scheduled)


def is_due(schedule: AgentSchedule, tick: int) -> bool:
    """Return whether the schedule fires at this tick.

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


def fire_point(agent: Scheduled | AgentSchedule) -> float:
    """Return the moment inside a tick at which an agent, or one with this schedule, fires, in [0, 1).

    Formula: architecture guide, "Fire Point Calculation".

    >>> [fire_point(AgentSchedule(run_every_n_ticks=4, phase_offset=n)) for n in range(4)]
    [0.0, 0.75, 0.5, 0.25]
    """
    schedule = agent if isinstance(agent, AgentSchedule) else agent.schedule
    return ((-schedule.phase_offset) % schedule.run_every_n_ticks) / schedule.run_every_n_ticks


def in_order(agents: Iterable[A]) -> list[A]:
    """Return the agents in the order in which they take their turns: ascending (fire point, name)."""
    return sorted(agents, key=lambda agent: (fire_point(agent), agent.name))
