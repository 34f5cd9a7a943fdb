"""When an agent is due next, for any screen: in a tick, or at a moment."""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import NamedTuple

from lemming.kernel.agents import Agent, survey_agents
from lemming.kernel.base.clock import SystemClock, parse_timestamp, timestamp
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.base.times.cron import next_occurrence
from lemming.kernel.base.times.words import moment_in_words, until_text
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.org.schedule import due_by_clock, next_due
from lemming.kernel.org.uses import habits_of
from lemming.kernel.tick.counter import load_counter
from lemming.kernel.tick.seams import TickLook, next_moment, parts_in


class NextTurn(NamedTuple):
    """When an agent is due next: `tick` by number, or `at` by the clock; neither: never.

    `now` is when that was asked; what was due before has been due since `at`.
    """

    now: datetime
    tick: int | None = None
    at: datetime | None = None

    @property
    def words(self) -> str:
        """Say it, as what follows "not due until" or "next"."""
        if self.tick is not None:
            return f"tick {self.tick}"
        if self.at is None:
            return "never"
        if self.at <= self.now:
            return f"the next tick (due since {moment_in_words(self.at)}, cron)"
        return f"{moment_in_words(self.at)} ({until_text(self.at, self.now)}), cron"

    @property
    def as_text(self) -> str | None:
        """The moment as it stands in files; None where there is none."""
        return timestamp(self.at) if self.at else None


def next_turn(
    base: OrgPath, agent: Agent, config: Config, tick: int, *, since: str | None = None
) -> NextTurn:
    """Return when an agent is due at or after a tick.

    `since` is the clock's reading of the tick before; default: the one that was kept.
    """
    schedule, now = agent.schedule, SystemClock().now()
    is_asked = habits_of(agent, config).is_asked
    if since is None:
        since = "" if is_asked and schedule.cron is None else load_counter(base)[1]
    if not is_asked:
        org = Organisation.at(base)
        survey = survey_agents(org)
        look = TickLook(org, config, survey, tick, timestamp(now), since)
        with contextlib.suppress(ConfigError):
            parts = [it for it in parts_in(org, survey, config) if agent.name in it.agents]
            return NextTurn(now, at=next_moment(parts, look, now))
    zone_name = schedule.timezone or config.org.timezone
    if schedule.cron is None:
        return NextTurn(now, tick=next_due(schedule, tick))
    if zone_name is None:
        return NextTurn(now)
    if due := due_by_clock(schedule, zone_name, since, timestamp(now)):
        return NextTurn(now, at=due.first)
    after = max(parse_timestamp(since), now) if since else now
    return NextTurn(now, at=next_occurrence(schedule.cron, zone_name, after))
