"""Cron schedules: due times of an expression in a time zone, and errors in expressions. Pure.

Five fields as in Debian's cron (`cronsim`), or `@daily` and similar names. Daylight saving: a fixed time
skipped by the clock is due right after the jump, and a repeated time is due only once; schedules with a star
for the minute or the hour follow real time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

from lemming.kernel.base.jsontext import closest_match, did_you_mean
from lemming.kernel.base.times import get_zone

NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
FIELDS = ("minute", "hour", "day of the month", "month", "day of the week")
EXAMPLE = 'such as "0 9 * * mon-fri": minute, hour, day of the month, month, day of the week'
MAX_COUNTED = 1000
_NAMES = {
    3: ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
    4: ("sun", "mon", "tue", "wed", "thu", "fri", "sat"),
}
_ENDS_ON_SUNDAY = re.compile(r"(?<=[a-z])-sun\b", re.IGNORECASE)
_FIELD_NUMBERS = {"minute": 0, "hour": 1, "day-of-month": 2, "month": 3, "day-of-week": 4}
_RANGES = ("0-59", "0-23", "1-31 or L", "1-12 or jan-dec", "0-7 or sun-sat, also 5L, mon#2")


class DueTimes(NamedTuple):
    """Due times of a schedule within an interval: the first, the last, and their number, at most `MAX_COUNTED`."""

    times: int
    first: datetime
    last: datetime


def find_cron_error(text: str) -> tuple[str, str] | None:
    """Return the error in a cron expression and a hint, or None.

    >>> find_cron_error("0 9 * * mon-fir")
    ('"mon-fir" is not a valid day of the week (0-7 or sun-sat, also 5L, mon#2)', 'did you mean "mon-fri"?')
    >>> find_cron_error("@dayly")
    ('"@dayly" is not a valid schedule', 'did you mean "@daily"?')
    >>> find_cron_error("0 9 31 2 *")
    ('"0 9 31 2 *" never occurs', 'name a month that has this day')
    """
    from cronsim import CronSim, CronSimError

    if text.strip().startswith("@"):
        if text.strip().lower() in NICKNAMES:
            return None
        hint = did_you_mean(text.strip().lower(), list(NICKNAMES)) or f"use one of {', '.join(NICKNAMES)}"
        return f'"{text}" is not a valid schedule', hint
    fields = text.split()
    if len(fields) != len(FIELDS):
        return f'a cron expression must have five fields, got {len(fields)} in "{text}"', EXAMPLE
    try:
        sim = CronSim(_expand_nickname(text), datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        number = _FIELD_NUMBERS.get(str(error).removeprefix("Bad "), 0)
        # a day that exists, but in none of these months
        if number == 2 and fields[3] != "*" and find_cron_error(f"0 0 {fields[2]} * *") is None:
            return f'"{text}" never occurs', "name a month that has this day"
        message = f'"{fields[number]}" is not a valid {FIELDS[number]} ({_RANGES[number]})'
        return message, _suggest_spelling(fields[number], number) or EXAMPLE
    if next(sim, None) is None:  # as the 31st of February
        return f'"{text}" never occurs', EXAMPLE
    return None


def _suggest_spelling(field: str, number: int) -> str:
    """Return a suggestion for a field with misspelt names, or an empty string."""
    names = _NAMES.get(number, ())

    def correct(match: re.Match[str]) -> str:
        return closest_match(match[0], names) or closest_match(match[0][:3], names) or match[0]

    corrected = re.sub(r"[a-z]{3,}", correct, field.lower())
    if corrected != field.lower():
        return f'did you mean "{corrected}"?'
    first, dash, last = corrected.partition("-")
    if dash and first in names and last in names:  # as fri-mon
        return f"split the range at {names[-1]}, with a comma between the parts"
    return ""


def iter_occurrences(cron: str, zone_name: str, start: datetime) -> Iterator[datetime]:
    """Yield the due times of a schedule after `start`, in the time zone, in order, each once."""
    text = _expand_nickname(cron)
    last_time = start.astimezone(UTC)
    for time in _cron_iterator_class()(text, start.astimezone(get_zone(zone_name))):
        # Where clocks are put back, the search begins at a time of day that comes twice.
        if (utc_time := time.astimezone(UTC)) > last_time:
            last_time = utc_time
            yield time


def _expand_nickname(cron: str) -> str:
    """Return an expression in cronsim's form: nicknames expanded, Sunday as the end of a week.

    >>> _expand_nickname("@daily"), _expand_nickname("0 9 * * fri-sun")
    ('0 0 * * *', '0 9 * * fri-7')
    """
    fields = NICKNAMES.get(cron.strip().lower(), cron).split()
    if len(fields) == len(FIELDS):
        fields[4] = _ENDS_ON_SUNDAY.sub("-7", fields[4])
    return " ".join(fields)


@cache
def _cron_iterator_class() -> type[Any]:
    """Return cronsim's iterator, corrected for clock changes of less than an hour.

    cronsim steps by whole hours of real time, and after such a change would land beside the full hour.
    """
    from cronsim import CronSim

    class Simulator(CronSim):
        def advance_hour(self) -> bool:
            if self.dt.hour in self.hours:
                return False
            self.dt = self.dt.replace(minute=0, second=0)
            while self.dt.hour not in self.hours:
                self.tick(seconds=3600 - 60 * self.dt.minute)
                if self.dt.hour == 0:
                    break
            return True

        def advance_minute(self) -> bool:
            if self.dt.minute in self.minutes:
                return False
            self.dt = self.dt.replace(second=0)
            while self.dt.minute not in self.minutes:
                waits = [minute - self.dt.minute for minute in self.minutes if minute > self.dt.minute]
                self.tick(seconds=60 * min(waits, default=60 - self.dt.minute))
                if self.dt.minute == 0:
                    break
            return True

    return Simulator


def next_occurrence(cron: str, zone_name: str, start: datetime) -> datetime | None:
    """Return the first due time of a schedule after `start`, or None."""
    return next(iter_occurrences(cron, zone_name, start), None)


def find_due_times(
    cron: str,
    zone_name: str,
    start: datetime,
    until: datetime,
    *,
    grace: timedelta | None = None,
    counts: Callable[[datetime], bool] = lambda _: True,
) -> DueTimes | None:
    """Return the due times of a schedule in (`start`, `until`], or None.

    With `grace`, only due times younger than `grace` at `until`. Times for which `counts` is False are
    ignored.
    """
    if grace is not None:
        start = max(start, until - grace)
    if until <= start:
        return None

    def iter_within(start: datetime, end: datetime) -> Iterator[datetime]:
        for time in iter_occurrences(cron, zone_name, start):
            if time.astimezone(UTC) > end:
                return
            if counts(time):
                yield time

    count, first, last = 0, until, until
    for time in iter_within(start, until):
        if count == MAX_COUNTED:
            return DueTimes(count, first, _find_last(iter_within, last, until))
        count, first, last = count + 1, first if count else time, time
    return DueTimes(count, first, last) if count else None


def _find_last(
    iter_within: Callable[[datetime, datetime], Iterator[datetime]], start: datetime, until: datetime
) -> datetime:
    """Return the last due time in an interval, searched from the end day by day, or `start`."""
    begin = until
    while begin > start:
        end, begin = begin, max(begin - timedelta(days=1), start)
        if times := [*iter_within(begin, end)]:
            return times[-1]
    return start


def describe_cron(cron: str) -> str:
    """Return a schedule in words.

    >>> describe_cron("0 9 * * mon-fri")
    'At 09:00 on Monday through Friday'
    """
    from cronsim import CronSim

    text = _expand_nickname(cron)
    return CronSim(text, datetime(2000, 1, 1, tzinfo=UTC)).explain()
