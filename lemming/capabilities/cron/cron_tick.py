"""Cron schedules in a tick: an agent takes a turn if a due time lies between two clock times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from itertools import tee

from lemming.capabilities.cron.cron_capability import find_schedule_due_times, schedule_text
from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.org.schedule import AgentSchedule
from lemming.kernel.tick.first_clock_readings import find_first_reading
from lemming.kernel.tick.tick_hooks import TickInterceptor, TickView, UpcomingEvent
from lemming.libraries.cron_expressions import iter_occurrences

NO_ZONE = (
    'the cron expression requires a time zone (set "timezone" in the schedule, or for all agents in config/org.json)'
)


class CronTickInterceptor(TickInterceptor):
    """Skips agents whose cron schedule has no due time."""

    uses_clock = True

    def schedules(self, view: TickView) -> Mapping[str, str]:
        """Return the schedule of each agent, by name."""
        return {
            name: schedule_text(schedule, view.config.org.timezone)
            for schedule, names in self._group_by_schedule(view).items()
            for name in names
        }

    def skipped_agents(self, view: TickView) -> Mapping[str, str]:
        """Return the agents without a due time between the previous clock time and this tick's."""
        skipped: dict[str, str] = {}
        zone_name = view.config.org.timezone
        for schedule, names in self._group_by_schedule(view).items():
            if schedule.timezone is None and zone_name is None:
                skipped |= dict.fromkeys(names, NO_ZONE)
                continue
            for since, group in self._group_by_first_reading(view, schedule, names).items():
                if not find_schedule_due_times(schedule, zone_name, since, view.at):
                    skipped |= dict.fromkeys(group, "")
        return skipped

    def upcoming_events(self, view: TickView, start: datetime) -> Iterator[Iterator[UpcomingEvent]]:
        """Yield the upcoming turns of each agent, including missed ones."""
        for schedule, names in self._group_by_schedule(view).items():
            zone_name = schedule.timezone or view.config.org.timezone
            if schedule.cron and zone_name:
                earliest = max(start, _earliest_due(schedule, view.at)) if schedule.missed == "skip" else start
                for since, group in self._group_by_first_reading(view, schedule, names).items():
                    begin = max(earliest, parse_timestamp(since)) if since else earliest
                    streams = tee(iter_occurrences(schedule.cron, zone_name, begin), len(group))
                    yield from (
                        _upcoming_turns(name, schedule, times) for name, times in zip(group, streams, strict=True)
                    )

    def _group_by_first_reading(
        self, view: TickView, schedule: AgentSchedule, names: list[str]
    ) -> dict[str, list[str]]:
        """Return the agents of one schedule by the clock time after which due times count."""
        text, groups = schedule_text(schedule, view.config.org.timezone), dict[str, list[str]]()
        for name in names:
            since = find_first_reading(view.org, name, text, view.since, view.at)
            groups.setdefault(since, []).append(name)
        return groups

    def _group_by_schedule(self, view: TickView) -> dict[AgentSchedule, list[str]]:
        """Return the agents by schedule, so that each schedule is computed once."""
        groups: dict[AgentSchedule, list[str]] = {}
        for name in self.agents:
            if agent := view.survey.agents.get(name):
                groups.setdefault(agent.schedule, []).append(name)
        return groups


def _earliest_due(schedule: AgentSchedule, at: str) -> datetime:
    """Return the earliest due time that is not too old."""
    return parse_timestamp(at) - timedelta(minutes=schedule.grace_minutes)


def _upcoming_turns(name: str, schedule: AgentSchedule, times: Iterator[datetime]) -> Iterator[UpcomingEvent]:
    return (UpcomingEvent(time, name, f"a turn, cron {schedule.cron}") for time in times)
