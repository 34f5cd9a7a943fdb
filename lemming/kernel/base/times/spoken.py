"""Moments as people write them: "tomorrow 9:00", "in 2h", "fri 17:30", ISO. Pure; the grammar is all here.

    MOMENT   = ISO | [DAY] TIME | DAY            a day alone means 9:00
    DAY      = today | tomorrow | mon ... sunday | YYYY-MM-DD
    TIME     = H:MM | HH:MM
    DURATION = a number and s, m, h, d or w, several in a row: 90s, 30m, 1h30m, 3d, 2w

A time without a day is the next one; a weekday is the next one that is still to come.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from lemming.kernel.base.clock import is_on_the_calendar, parse_timestamp, timestamp
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.times.zones import zone

EXAMPLES = '"tomorrow 9:00", "17:30", "fri 8:15", "2026-12-01 12:00", "2026-12-01T12:00+01:00"'
DURATIONS = "90s, 30m, 2h, 1h30m, 3d, 2w"
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"(?:\d{1,9}(?:\.\d{1,6})?[smhdw])+\Z")
_PART = re.compile(r"([\d.]+)([smhdw])")
_TIME = re.compile(r"(\d{1,2}):(\d\d)\Z")
_MORNING = time(9)


def moment_of(value: object) -> str:
    """Return what a file says is a moment, as `clock.timestamp` writes it; empty for anything else.

    Without an offset it is in UTC.

    >>> moment_of("2026-12-01T12:00+01:00"), moment_of("tomorrow"), moment_of(7)
    ('2026-12-01T11:00:00.000Z', '', '')
    """
    if not isinstance(value, str):
        return ""
    try:
        return timestamp(parse_timestamp(value))
    except (ValueError, OverflowError):
        return ""


def parse_duration(text: str) -> timedelta:
    """Return a duration; raise `UsageError` with examples for what is none.

    >>> parse_duration("1h30m")
    datetime.timedelta(seconds=5400)
    """
    compact = "".join(text.lower().split())
    if not _DURATION.match(compact):
        raise UsageError(f'"{text}" is no duration', hint=f"write {DURATIONS}")
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(compact))
    if seconds > 100 * 366 * 86_400:
        raise UsageError(f'"{text}" is too long', hint="a hundred years at most")
    return timedelta(seconds=seconds)


def parse_moment(text: str, now: datetime, zone_name: str) -> datetime:
    """Return the moment that a person means, in that time zone. It may have passed.

    Raises `UsageError` with examples for what is none, and for a time of day that the clock jumps over.

    >>> now = datetime(2026, 11, 22, 14, tzinfo=UTC)
    >>> str(parse_moment("tomorrow 9:00", now, "Europe/Berlin")), str(parse_moment("sun 9:00", now, "UTC"))
    ('2026-11-23 09:00:00+01:00', '2026-11-29 09:00:00+00:00')
    """
    here = now.astimezone(zone(zone_name))
    words = [word for word in text.lower().replace(",", " ").split() if word != "at"]
    if words[:1] == ["in"] and len(words) > 1:
        return (now + parse_duration(" ".join(words[1:]))).astimezone(here.tzinfo)
    if len(words) == 1 and "t" in words[0] and (iso := _iso(text.strip())):
        return iso.astimezone(here.tzinfo) if iso.tzinfo else _at(iso.date(), iso.time(), here, text)
    at = _time(words[-1]) if words else None
    days = words[:-1] if at else words
    if len(days) > 1 or (not at and not days):
        raise _no_moment(text)
    if not days:
        moment = _at(here.date(), at or _MORNING, here, text)
        return moment if moment > here else _at(here.date() + timedelta(days=1), at or _MORNING, here, text)
    day = _day(days[0], here)
    if day is None:
        raise _no_moment(text)
    moment = _at(day, at or _MORNING, here, text)
    is_weekday = days[0][:3] in {name[:3] for name in WEEKDAYS}
    return (
        moment
        if moment > here or not is_weekday
        else _at(day + timedelta(days=7), at or _MORNING, here, text)
    )


def _iso(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError:
        return None
    return moment if is_on_the_calendar(moment) else None


def _time(word: str) -> time | None:
    match = _TIME.match(word)
    if match is None or int(match[1]) > 23 or int(match[2]) > 59:
        return None
    return time(int(match[1]), int(match[2]))


def _day(word: str, here: datetime) -> date | None:
    if word in ("today", "tomorrow"):
        return here.date() + timedelta(days=word == "tomorrow")
    for number, name in enumerate(WEEKDAYS):
        if len(word) >= 3 and name.startswith(word):
            return here.date() + timedelta(days=(number - here.weekday()) % 7)
    try:
        day = date.fromisoformat(word)
    except ValueError:
        return None
    return day if is_on_the_calendar(datetime.combine(day, _MORNING)) else None


def _at(day: date, at: time, here: datetime, text: str) -> datetime:
    moment = datetime.combine(day, at, tzinfo=here.tzinfo)
    # what the clock jumps over comes back from UTC as another time
    if moment.astimezone(UTC).astimezone(here.tzinfo).replace(tzinfo=None) != moment.replace(tzinfo=None):
        raise UsageError(f'"{text}" does not come: clocks are put forward over it', hint="name a later time")
    return moment


def _no_moment(text: str) -> UsageError:
    return UsageError(f'"{text}" is no moment', hint=f'write {EXAMPLES}, or "in 2h" ({DURATIONS})')


Expires = int | str
"""How long something is waited for: so many ticks, or a time such as "2h"."""


def until_in(expires: Iterable[Expires], at: str) -> dict[str, Any]:
    """Return the keys of a payload that say how long an answer is waited for, from a moment on.

    >>> until_in([20, "2h", "30m"], "2026-01-01T00:00:00.000Z")
    {'deadline': 20, 'not_after': '2026-01-01T00:30:00.000Z'}
    """
    said = [*expires]
    ticks = [it for it in said if isinstance(it, int)]
    times = [parse_duration(it) for it in said if isinstance(it, str)]
    in_ticks: dict[str, Any] = {"deadline": min(ticks)} if ticks else {}
    return {
        **in_ticks,
        **({"not_after": timestamp(parse_timestamp(at) + min(times))} if times and at else {}),
    }
