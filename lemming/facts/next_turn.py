"""When an agent is due next, for any screen: in a tick, or at a moment."""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import NamedTuple

from lemming.kernel.agents import Agent, survey_agents
from lemming.kernel.base.clock import SystemClock, parse_timestamp, timestamp
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.base.times.words import moment_in_words, until_text
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.org.schedule import next_due
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
    if is_asked and schedule.cron is None:
        return NextTurn(now, tick=next_due(schedule, tick))
    org, since = Organisation.at(base), load_counter(base)[1] if since is None else since
    survey = survey_agents(org)
    look = TickLook(org, config, survey, tick, timestamp(now), since)
    after = parse_timestamp(since) if since and is_asked else now
    with contextlib.suppress(ConfigError):
        parts = [type(it)([agent.name]) for it in parts_in(org, survey, config) if agent.name in it.agents]
        return NextTurn(now, at=next_moment(parts, look, after))
    return NextTurn(now)
