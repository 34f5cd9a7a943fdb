"""Times in everyday notation: "tomorrow 9:00", "in 2h", "fri 17:30", ISO. Pure; the grammar is all here.

    MOMENT   = ISO | [DAY] TIME | DAY            a day alone means 9:00
    DAY      = today | tomorrow | mon ... sunday | YYYY-MM-DD
    TIME     = H:MM | HH:MM
    DURATION = a number and s, m, h, d or w, several in a row: 90s, 30m, 1h30m, 3d, 2w

A time without a day means its next occurrence; a weekday means the next future one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any

from lemming.kernel.base.clock import is_representable, parse_timestamp, timestamp
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import did_you_mean

EXAMPLES = '"tomorrow 9:00", "17:30", "fri 8:15", "2026-12-01 12:00", "2026-12-01T12:00+01:00"'
DURATIONS = "90s, 30m, 2h, 1h30m, 3d, 2w"
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"(?:\d{1,9}(?:\.\d{1,6})?[smhdw])+\Z")
_PART = re.compile(r"([\d.]+)([smhdw])")
_TIME = re.compile(r"(\d{1,2}):(\d\d)\Z")
_MORNING = time(9)


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


def parse_moment(text: str, current_time: datetime, zone_name: str) -> datetime:
    """Parse a person's time specification in a time zone. The result may be in the past.

    Raises `UsageError` with examples for an invalid text, and for a time of day skipped by a clock change.

    >>> now = datetime(2026, 11, 22, 14, tzinfo=UTC)
    >>> str(parse_moment("tomorrow 9:00", now, "Europe/Berlin")), str(parse_moment("sun 9:00", now, "UTC"))
    ('2026-11-23 09:00:00+01:00', '2026-11-29 09:00:00+00:00')
    """
    local_time = current_time.astimezone(get_zone(zone_name))
    parts = [part for part in text.lower().replace(",", " ").split() if part != "at"]
    if parts[:1] == ["in"] and len(parts) > 1:
        return (current_time + parse_duration(" ".join(parts[1:]))).astimezone(local_time.tzinfo)
    if len(parts) == 1 and "t" in parts[0] and (iso := _iso(text.strip())):
        return (
            iso.astimezone(local_time.tzinfo)
            if iso.tzinfo
            else _combine_moment(iso.date(), iso.time(), local_time, text)
        )
    day_time = _parse_time(parts[-1]) if parts else None
    days = parts[:-1] if day_time else parts
    if len(days) > 1 or (not day_time and not days):
        raise _moment_error(text)
    if not days:
        moment = _combine_moment(local_time.date(), day_time or _MORNING, local_time, text)
        return (
            moment
            if moment > local_time
            else _combine_moment(local_time.date() + timedelta(days=1), day_time or _MORNING, local_time, text)
        )
    day = _parse_day(days[0], local_time)
    if day is None:
        raise _moment_error(text)
    moment = _combine_moment(day, day_time or _MORNING, local_time, text)
    is_weekday = days[0][:3] in {name[:3] for name in WEEKDAYS}
    return (
        moment
        if moment > local_time or not is_weekday
        else _combine_moment(day + timedelta(days=7), day_time or _MORNING, local_time, text)
    )


def _iso(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError:
        return None
    return moment if is_representable(moment) else None


def _parse_time(text: str) -> time | None:
    match = _TIME.match(text)
    if match is None or int(match[1]) > 23 or int(match[2]) > 59:
        return None
    return time(int(match[1]), int(match[2]))


def _parse_day(text: str, local_time: datetime) -> date | None:
    if text in ("today", "tomorrow"):
        return local_time.date() + timedelta(days=text == "tomorrow")
    for number, name in enumerate(WEEKDAYS):
        if len(text) >= 3 and name.startswith(text):
            return local_time.date() + timedelta(days=(number - local_time.weekday()) % 7)
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    return day if is_representable(datetime.combine(day, _MORNING)) else None


def _combine_moment(day: date, day_time: time, local_time: datetime, text: str) -> datetime:
    moment = datetime.combine(day, day_time, tzinfo=local_time.tzinfo)
    # a time that the clock skips comes back from UTC as another time
    if moment.astimezone(UTC).astimezone(local_time.tzinfo).replace(tzinfo=None) != moment.replace(tzinfo=None):
        raise UsageError(f'"{text}" does not exist: clocks are put forward over it', hint="name a later time")
    return moment


def _moment_error(text: str) -> UsageError:
    return UsageError(f'expected a time, got "{text}"', hint=f'write {EXAMPLES}, or "in 2h" ({DURATIONS})')


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
        hint_text = did_you_mean(name.lower(), list(names_by_lowercase)) or did_you_mean(
            name.lower().replace(" ", "_"), list(cities)
        )
        suggestion = hint_text.removeprefix('did you mean "').removesuffix('"?')
        zone_name = names_by_lowercase.get(suggestion) or names_by_lowercase.get(cities.get(suggestion, ""))
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
_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def format_moment(moment: datetime) -> str:
    """Return a time in its own time zone.

    >>> from datetime import UTC
    >>> format_moment(datetime(2026, 11, 23, 8, tzinfo=UTC).astimezone(get_zone("Europe/Berlin")))
    'Mon 23 Nov 2026 09:00 CET'
    """
    day, month = DAYS[moment.weekday()][:3], MONTHS[moment.month - 1][:3]
    return f"{day} {moment.day} {month} {moment.year} {moment:%H:%M} {moment.tzname()}"


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


def format_remaining_time(moment: datetime, current_time: datetime) -> str:
    """Return the distance to a time in its largest whole unit, rounded down.

    >>> from datetime import UTC, timedelta
    >>> now = datetime(2026, 11, 22, 14, tzinfo=UTC)
    >>> format_remaining_time(now + timedelta(hours=19, minutes=5), now), format_remaining_time(now, now)
    ('in 19 h', 'now')
    >>> format_remaining_time(now - timedelta(days=2), now)
    '2 d ago'
    """
    seconds = int((moment - current_time).total_seconds())
    for size, unit in _UNITS:
        if abs(seconds) >= size:
            return f"in {seconds // size} {unit}" if seconds > 0 else f"{-seconds // size} {unit} ago"
    return "now"
