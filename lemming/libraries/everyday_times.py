"""Times in everyday notation: "tomorrow 9:00", "in 2h", "fri 17:30", ISO. Pure; `base.times` has the durations.

    MOMENT   = ISO | [DAY] TIME | DAY | in DURATION      a day alone means 9:00
    DAY      = today | tomorrow | mon ... sunday | YYYY-MM-DD
    TIME     = H:MM | HH:MM

A time without a day means its next occurrence; a weekday means the next future one.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta

from lemming.kernel.base.clock import is_representable
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.times import DAYS, DURATIONS, MONTHS, get_zone, parse_duration

EXAMPLES = '"tomorrow 9:00", "17:30", "fri 8:15", "2026-12-01 12:00", "2026-12-01T12:00+01:00"'
WEEKDAYS = tuple(map(str.lower, DAYS))
_TIME = re.compile(r"(\d{1,2}):(\d\d)\Z")
_MORNING = time(9)
_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


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
        if iso.tzinfo:
            return iso.astimezone(local_time.tzinfo)
        return _combine_moment(iso.date(), iso.time(), local_time, text)
    day_time = _parse_time(parts[-1]) if parts else None
    days = parts[:-1] if day_time else parts
    if len(days) > 1 or not (days or day_time):
        raise _moment_error(text)
    day = _parse_day(days[0], local_time) if days else local_time.date()
    if day is None:
        raise _moment_error(text)
    moment = _combine_moment(day, day_time or _MORNING, local_time, text)
    is_weekday = bool(days) and days[0][:3] in {name[:3] for name in WEEKDAYS}
    if moment > local_time or (days and not is_weekday):
        return moment
    return _combine_moment(day + timedelta(days=7 if days else 1), day_time or _MORNING, local_time, text)


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


def format_moment(moment: datetime) -> str:
    """Return a time in its own time zone.

    >>> format_moment(datetime(2026, 11, 23, 8, tzinfo=UTC).astimezone(get_zone("Europe/Berlin")))
    'Mon 23 Nov 2026 09:00 CET'
    """
    day, month = DAYS[moment.weekday()][:3], MONTHS[moment.month - 1][:3]
    return f"{day} {moment.day} {month} {moment.year} {moment:%H:%M} {moment.tzname()}"


def format_remaining_time(moment: datetime, current_time: datetime) -> str:
    """Return the distance to a time, rounded to a whole number of one unit: 90 minutes, not 2 hours.

    >>> now = datetime(2026, 11, 22, 14, tzinfo=UTC)
    >>> format_remaining_time(now + timedelta(hours=19, minutes=5), now), format_remaining_time(now, now)
    ('in 19 h', 'now')
    >>> format_remaining_time(now + timedelta(hours=1, minutes=59, seconds=59), now)
    'in 2 h'
    >>> format_remaining_time(now + timedelta(hours=1, minutes=30), now)
    'in 90 min'
    >>> format_remaining_time(now - timedelta(days=2), now)
    '2 d ago'
    """
    seconds = round((moment - current_time).total_seconds())
    for size, unit in _UNITS:
        number = (abs(seconds) + size // 2) // size
        is_close = number > 0 and abs(abs(seconds) - number * size) <= size // 20
        if is_close or abs(seconds) >= 2 * size:
            return f"in {number} {unit}" if seconds > 0 else f"{number} {unit} ago"
    return "now"
