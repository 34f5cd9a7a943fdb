"""What comes up by the clock: turns, jobs of the calendar, entries that wait. For any screen; looks only."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice, takewhile

from lemming.agents import Survey, survey_agents
from lemming.base.clock import SystemClock, parse_timestamp, timestamp
from lemming.base.times.cron import occurrences, zone
from lemming.mail.index import EntryIndex
from lemming.messages import OutboxEntry
from lemming.org.config import Config
from lemming.org.organisation import Organisation
from lemming.tick.counter import load_counter
from lemming.tick.seams import Coming, TickLook, parts_in

MOST_OF_EACH = 200


def coming_until(org: Organisation, config: Config, until: datetime) -> list[Coming]:
    """Return what comes up from now until a moment, in order, of each schedule the first `MOST_OF_EACH`."""
    now, survey = SystemClock().now(), survey_agents(org)
    found = [
        *_turns(survey, config, now, until),
        *_asked(org, survey, config, now, until),
        *_entries(org, survey, config, now, until),
    ]
    return sorted(found, key=lambda it: (it.at, it.agent, it.what))


def _turns(survey: Survey, config: Config, now: datetime, until: datetime) -> Iterator[Coming]:
    for schedule, names in survey.by_clock.items():
        zone_name = schedule.timezone or config.org.timezone
        if schedule.cron and zone_name:
            moments = islice(occurrences(schedule.cron, zone_name, now), MOST_OF_EACH)
            for moment in takewhile(lambda it: it <= until, moments):
                yield from (Coming(moment, name, f"a turn, cron {schedule.cron}") for name in names)


def _asked(
    org: Organisation, survey: Survey, config: Config, now: datetime, until: datetime
) -> Iterator[Coming]:
    if parts := parts_in(org, survey, config):
        tick, since = load_counter(org)
        look = TickLook(org, config, survey, tick, timestamp(now), since)
        for found in (each for part in parts for each in part.comes(look, now)):
            yield from takewhile(lambda it: it.at <= until, islice(found, MOST_OF_EACH))


def _entries(
    org: Organisation, survey: Survey, config: Config, now: datetime, until: datetime
) -> Iterator[Coming]:
    index, here = org.own(EntryIndex), zone(config.org.timezone or "UTC")
    for author in survey.agents:
        for name in index.outbox(author).by_hand:
            moment = index.moment_of(name)
            if timestamp(now) < moment <= timestamp(until) and isinstance(
                entry := index.read(name), OutboxEntry
            ):
                to = ", ".join(sorted(entry.targets)) or "all"
                text = entry.payload.get("text", "")
                yield Coming(parse_timestamp(moment).astimezone(here), to, f"an entry of {author}: {text}")
