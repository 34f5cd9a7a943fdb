"""Durations, time zones and times of files: "90s", "1h30m", "2w". Pure. `libraries/everyday_times.py` reads people's times.

A duration is a number and s, m, h, d or w, several in a row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta, tzinfo
from typing import Any

from lemming.kernel.base.clock import parse_timestamp, timestamp
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import closest_match

DURATIONS = "90s, 30m, 2h, 1h30m, 3d, 2w"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"(?:\d{1,9}(?:\.\d{1,6})?[smhdw])+\Z")
_PART = re.compile(r"([\d.]+)([smhdw])")


def normalize_moment(value: object) -> str:
    """Return a file's time value in the format of `clock.timestamp`, or an empty string for anything else.

    A time without an offset is in UTC.

    >>> normalize_moment("2026-12-01T12:00+01:00"), normalize_moment("tomorrow"), normalize_moment(7)
    ('2026-12-01T11:00:00.000Z', '', '')
    """
    if not isinstance(value, str):
        return ""
    try:
        return timestamp(parse_timestamp(value))
    except (ValueError, OverflowError):
        return ""


def parse_duration(text: str) -> timedelta:
    """Parse a duration. Raise `UsageError` with examples for an invalid text.

    >>> parse_duration("1h30m")
    datetime.timedelta(seconds=5400)
    """
    compact = "".join(text.lower().split())
    if not _DURATION.match(compact):
        raise UsageError(f'expected a duration, got "{text}"', hint=f"write {DURATIONS}")
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(compact))
    if seconds > 100 * 366 * 86_400:
        raise UsageError(f'a duration must be at most a hundred years, got "{text}"', hint="write a shorter duration")
    return timedelta(seconds=seconds)


Expiry = int | str
"""Length of a wait: a number of ticks, or a time such as "2h"."""


def expiry_payload(expires: Iterable[Expiry], at: str) -> dict[str, Any]:
    """Return the payload keys for the expiry of a request, relative to the time `at`.

    >>> expiry_payload([20, "2h", "30m"], "2026-01-01T00:00:00.000Z")
    {'deadline': 20, 'not_after': '2026-01-01T00:30:00.000Z'}
    """
    values = [*expires]
    ticks = [value for value in values if isinstance(value, int)]
    times = [parse_duration(value) for value in values if isinstance(value, str)]
    in_ticks: dict[str, Any] = {"deadline": min(ticks)} if ticks else {}
    return {**in_ticks, **({"not_after": timestamp(parse_timestamp(at) + min(times))} if times and at else {})}


def zone_error(name: str) -> tuple[str, str] | None:
    """Return the error and a suggestion for an invalid time zone name, or None for a valid name.

    >>> zone_error("Europe/Berlni")
    ('time zone "Europe/Berlni" does not exist', 'did you mean "Europe/Berlin"?')
    """
    import zoneinfo

    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        names_by_lowercase = {zone_name.lower(): zone_name for zone_name in zoneinfo.available_timezones()}
        cities = {zone_name.rpartition("/")[2]: zone_name for zone_name in names_by_lowercase}
        lowercase = closest_match(name.lower(), names_by_lowercase) or cities.get(
            closest_match(name.lower().replace(" ", "_"), cities), ""
        )
        zone_name = names_by_lowercase.get(lowercase)
        hint = f'did you mean "{zone_name}"?' if zone_name else "write a name such as Europe/Berlin"
        return f'time zone "{name}" does not exist', hint
    return None


def get_zone(name: str) -> tzinfo:
    """Return the time zone with a valid name, as checked by `zone_error`."""
    from zoneinfo import ZoneInfo

    return ZoneInfo(name)


DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip


def format_full_moment(moment: datetime, zone_name: str) -> str:
    """Return a time for a prompt: weekday, date, time and time zone.

    >>> from datetime import UTC
    >>> format_full_moment(datetime(2026, 11, 23, 8, tzinfo=UTC), "Europe/Berlin")
    'Monday, 23 November 2026, 09:00 CET (2026-11-23T09:00+01:00, Europe/Berlin)'
    """
    local_time = moment.astimezone(get_zone(zone_name))
    day, month = DAYS[local_time.weekday()], MONTHS[local_time.month - 1]
    iso = local_time.isoformat(timespec="minutes")
    return f"{day}, {local_time.day} {month} {local_time.year}, {local_time:%H:%M} {local_time.tzname()} ({iso}, {zone_name})"
