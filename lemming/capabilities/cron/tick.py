"""Cron schedules in a tick: a turn where a moment of one lies between two readings of the clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from itertools import tee

from lemming.capabilities.cron.capability import due_by_clock, schedule_text
from lemming.capabilities.cron.expressions import occurrences
from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.org.schedule import AgentSchedule
from lemming.kernel.tick.first_readings import find_first_reading
from lemming.kernel.tick.seams import Coming, TickLook, TickPart

NO_ZONE = (
    'its schedule has a cron expression and no time zone (set "timezone" in its schedule, or for all in '
    "config/org.json)"
)


class CronInTicks(TickPart):
    """Its agents are those with a cron schedule."""

    by_clock = True

    def schedules(self, look: TickLook) -> Mapping[str, str]:
        """Return the schedule of each agent, under its name."""
        return {
            name: schedule_text(schedule, look.config.org.timezone)
            for schedule, names in self._by_schedule(look).items()
            for name in names
        }

    def rests(self, look: TickLook) -> Mapping[str, str]:
        """Return those of whose schedule no moment lies after the reading before, up to that of the tick."""
        resting: dict[str, str] = {}
        zone_name = look.config.org.timezone
        for schedule, names in self._by_schedule(look).items():
            if schedule.timezone is None and zone_name is None:
                resting |= dict.fromkeys(names, NO_ZONE)
                continue
            for since, those in self._by_first_reading(look, schedule, names).items():
                if not due_by_clock(schedule, zone_name, since, look.at):
                    resting |= dict.fromkeys(those, "")
        return resting

    def comes(self, look: TickLook, after: datetime) -> Iterator[Iterator[Coming]]:
        """Yield the turns of each agent, those that are still to be made up for among them."""
        for schedule, names in self._by_schedule(look).items():
            zone_name = schedule.timezone or look.config.org.timezone
            if schedule.cron and zone_name:
                first = max(after, _not_before(schedule, look.at)) if schedule.missed == "skip" else after
                for since, those in self._by_first_reading(look, schedule, names).items():
                    begin = max(first, parse_timestamp(since)) if since else first
                    moments = tee(occurrences(schedule.cron, zone_name, begin), len(those))
                    yield from (_turns(it, schedule, each) for it, each in zip(those, moments, strict=True))

    def _by_first_reading(
        self, look: TickLook, schedule: AgentSchedule, names: list[str]
    ) -> dict[str, list[str]]:
        """Return the agents of one schedule by the reading after which its moments count for them."""
        text, found = schedule_text(schedule, look.config.org.timezone), dict[str, list[str]]()
        for name in names:
            since = find_first_reading(look.org, name, text, look.since, look.at)
            found.setdefault(since, []).append(name)
        return found

    def _by_schedule(self, look: TickLook) -> dict[AgentSchedule, list[str]]:
        """Return its agents, those with the same schedule together: it is worked out once for all of them."""
        together: dict[AgentSchedule, list[str]] = {}
        for name in self.agents:
            if agent := look.survey.agents.get(name):
                together.setdefault(agent.schedule, []).append(name)
        return together


def _not_before(schedule: AgentSchedule, at: str) -> datetime:
    """Return the moment before which what is due is too old."""
    return parse_timestamp(at) - timedelta(minutes=schedule.grace_minutes)


def _turns(name: str, schedule: AgentSchedule, moments: Iterator[datetime]) -> Iterator[Coming]:
    return (Coming(moment, name, f"a turn, cron {schedule.cron}") for moment in moments)
