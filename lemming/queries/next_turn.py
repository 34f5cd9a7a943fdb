"""The next turn of an agent, by tick number or by the clock, for any screen."""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from lemming.kernel.agents import Agent, survey_agents
from lemming.kernel.base.clock import SystemClock, parse_timestamp, timestamp
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.org.capability_usage import resolve_turn_policy
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.org.schedule import next_due
from lemming.kernel.tick.tick_counter import load_counter
from lemming.kernel.tick.tick_hooks import get_capability_uses
from lemming.libraries.everyday_times import format_moment, format_remaining_time
from lemming.operations.clock_schedules import iter_upcoming

if TYPE_CHECKING:
    pass


class NextTurn(NamedTuple):
    """The next turn of an agent: `tick` by number, or `at` by the clock. Without both it is never due.

    `queried_at`: time of the query. A turn with `at` before `queried_at` has been due since `at`.
    """

    queried_at: datetime
    tick: int | None = None
    at: datetime | None = None

    @property
    def description(self) -> str:
        """A description for use after "not due until" or "next"."""
        if self.tick is not None:
            return f"tick {self.tick}"
        if self.at is None:
            return "never"
        if self.at <= self.queried_at:
            return f"the next tick (due since {format_moment(self.at)}, cron)"
        return f"{format_moment(self.at)} ({format_remaining_time(self.at, self.queried_at)}), cron"

    @property
    def as_text(self) -> str | None:
        """The time `at` as a timestamp, or None if there is none."""
        return timestamp(self.at) if self.at else None


def find_next_turn(base: OrgPath, agent: Agent, config: Config, tick: int, *, since: str | None = None) -> NextTurn:
    """Return an agent's next turn at or after a tick. `since`: clock of the tick before, by default the stored one."""
    schedule, current_time = agent.schedule, SystemClock().now()
    runs_on_ticks = resolve_turn_policy(agent, config).is_asked
    if runs_on_ticks and schedule.cron is None:
        return NextTurn(current_time, tick=next_due(schedule, tick))
    from lemming.kernel.turn.descriptions import TickView

    org, since = Organisation.from_path(base), load_counter(base)[1] if since is None else since
    survey = survey_agents(org)
    view = TickView(org, config, survey, tick, timestamp(current_time), since)
    start = parse_timestamp(since) if since and runs_on_ticks else current_time
    with contextlib.suppress(ConfigError):
        all_uses = get_capability_uses(org, survey, config)
        uses = [use._replace(agents=[agent.name]) for use in all_uses if agent.name in use.agents]
        first_events = (next(events, None) for use in uses for events in iter_upcoming(use, view, start))
        return NextTurn(current_time, at=min((event.at for event in first_events if event), default=None))
    return NextTurn(current_time)
