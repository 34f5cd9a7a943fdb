"""Cron schedules: which moments an expression names in a time zone, and what is wrong with one. Pure.

Five fields as in Debian's cron (`cronsim`), or `@daily` and the like. Daylight saving: a fixed time that the
clock jumps over is due right after the jump, one that comes twice is due the first time only; schedules with
a star for the minute or the hour follow real time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

from lemming.kernel.base.jsontext import nearest
from lemming.kernel.base.times.zones import zone

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
MOST_COUNTED = 1000
_NAMES = {
    3: ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
    4: ("sun", "mon", "tue", "wed", "thu", "fri", "sat"),
}
_ENDS_ON_SUNDAY = re.compile(r"(?<=[a-z])-sun\b", re.IGNORECASE)
_FIELD_NUMBERS = {"minute": 0, "hour": 1, "day-of-month": 2, "month": 3, "day-of-week": 4}
_RANGES = ("0-59", "0-23", "1-31 or L", "1-12 or jan-dec", "0-7 or sun-sat, also 5L, mon#2")


class Due(NamedTuple):
    """The moments of a schedule within an interval: how many, the first and the last.

    At most `MOST_COUNTED` are counted; then there may be more.
    """

    times: int
    first: datetime
    last: datetime


def why_no_cron(text: str) -> tuple[str, str] | None:
    """Return what is wrong with a cron expression and what to write instead; None when nothing is.

    >>> why_no_cron("0 9 * * mon-fir")
    ('"mon-fir" is no day of the week (0-7 or sun-sat, also 5L, mon#2)', 'did you mean "mon-fri"?')
    >>> why_no_cron("@dayly")
    ('"@dayly" is no schedule', 'did you mean "@daily"?')
    """
    from cronsim import CronSim, CronSimError

    if text.strip().startswith("@"):
        if text.strip().lower() in NICKNAMES:
            return None
        hint = nearest(text.strip().lower(), list(NICKNAMES)) or f"known: {', '.join(NICKNAMES)}"
        return f'"{text}" is no schedule', hint
    fields = text.split()
    if len(fields) != len(FIELDS):
        return f'"{text}" has {len(fields)} fields and needs five', EXAMPLE
    try:
        sim = CronSim(_spelled_out(text), datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        return _field_and_reason(fields, str(error))
    if next(sim, None) is None:  # as the 31st of February
        return f'"{text}" never comes', EXAMPLE
    return None


def _field_and_reason(fields: list[str], message: str) -> tuple[str, str]:
    number = _FIELD_NUMBERS.get(message.removeprefix("Bad "), 0)
    field = fields[number]
    return f'"{field}" is no {FIELDS[number]} ({_RANGES[number]})', _meant(field, number) or EXAMPLE


def _meant(field: str, number: int) -> str:
    """Return the nearest spelling of a field whose names are misspelt; empty when there is none."""
    known = _NAMES.get(number, ())
    mended = re.sub(r"[a-z]{3,}", lambda word: _nearest_name(word[0], known), field.lower())
    if mended != field.lower():
        return f'did you mean "{mended}"?'
    first, dash, last = mended.partition("-")
    if dash and first in known and last in known:  # as fri-mon
        return f"a range does not go past {known[-1]}: name its parts, with commas"
    return ""


def _nearest_name(word: str, known: tuple[str, ...]) -> str:
    found = nearest(word, known) or nearest(word[:3], known)
    return found.removeprefix('did you mean "').removesuffix('"?') if found else word


def occurrences(cron: str, zone_name: str, after: datetime) -> Iterator[datetime]:
    """Yield the moments after `after` at which a schedule is due, in its time zone, in order, each once."""
    text = _spelled_out(cron)
    before = after.astimezone(UTC)
    for moment in _simulator()(text, after.astimezone(zone(zone_name))):
        # Where clocks are put back, the search begins at a time of day that comes twice.
        if (now := moment.astimezone(UTC)) > before:
            before = now
            yield moment


def _spelled_out(cron: str) -> str:
    """Return an expression as cronsim takes it: of a nickname what it stands for, Sunday as a week's end.

    >>> _spelled_out("@daily"), _spelled_out("0 9 * * fri-sun")
    ('0 0 * * *', '0 9 * * fri-7')
    """
    fields = NICKNAMES.get(cron.strip().lower(), cron).split()
    if len(fields) == len(FIELDS):
        fields[4] = _ENDS_ON_SUNDAY.sub("-7", fields[4])
    return " ".join(fields)


@cache
def _simulator() -> type[Any]:
    """Return cronsim's way of finding moments, right also where clocks change by less than an hour.

    It steps by whole hours of real time, and after such a change lands beside the full hour.
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
                later = [it - self.dt.minute for it in self.minutes if it > self.dt.minute]
                self.tick(seconds=60 * min(later, default=60 - self.dt.minute))
                if self.dt.minute == 0:
                    break
            return True

    return Simulator


def next_occurrence(cron: str, zone_name: str, after: datetime) -> datetime | None:
    """Return the first moment after `after` at which a schedule is due; None when it never is again."""
    return next(occurrences(cron, zone_name, after), None)


def due_between(
    cron: str,
    zone_name: str,
    after: datetime,
    until: datetime,
    *,
    grace: timedelta | None = None,
    counts: Callable[[datetime], bool] = lambda _: True,
) -> Due | None:
    """Return the moments of a schedule in (`after`, `until`], None when there is none.

    With `grace`, only those younger than that at `until`. Of a moment that does not count nothing is known.
    """
    if grace is not None:
        after = max(after, until - grace)
    if until <= after:
        return None

    def within(after: datetime, until: datetime) -> Iterator[datetime]:
        for moment in occurrences(cron, zone_name, after):
            if moment.astimezone(UTC) > until:
                return
            if counts(moment):
                yield moment

    count, first, last = 0, until, until
    for moment in within(after, until):
        if count == MOST_COUNTED:
            return Due(count, first, _last(within, last, until))
        count, first, last = count + 1, first if count else moment, moment
    return Due(count, first, last) if count else None


def _last(
    within: Callable[[datetime, datetime], Iterator[datetime]], after: datetime, until: datetime
) -> datetime:
    """Return the last moment in an interval, looked for from its end, day by day; else `after`."""
    begin = until
    while begin > after:
        end, begin = begin, max(begin - timedelta(days=1), after)
        if found := [*within(begin, end)]:
            return found[-1]
    return after


def explained(cron: str) -> str:
    """Return a schedule in words.

    >>> explained("0 9 * * mon-fri")
    'At 09:00 on Monday through Friday'
    """
    from cronsim import CronSim

    text = _spelled_out(cron)
    return CronSim(text, datetime(2000, 1, 1, tzinfo=UTC)).explain()
