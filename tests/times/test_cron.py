"""Cron schedules against a walk minute by minute, in thirty time zones over three years; and wrong ones."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

import pytest

from lemming.kernel.base.times import zone_error
from lemming.libraries.cron_expressions import describe_cron, find_cron_error, find_due_times, iter_occurrences

EVERYTHING = os.environ.get("LEMMING_CRASH_POINTS") == "all"
START, END = datetime(2025, 1, 1, tzinfo=UTC), datetime(2028, 1, 1, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
ZONES = """
    Africa/Cairo Africa/Casablanca Africa/El_Aaiun America/Anchorage America/Asuncion America/Havana
    America/Los_Angeles America/New_York America/Nuuk America/Phoenix America/Santiago America/Sao_Paulo
    America/St_Johns Antarctica/Troll Asia/Beirut Asia/Gaza Asia/Jerusalem Asia/Kathmandu Asia/Kolkata
    Asia/Tokyo Atlantic/Azores Australia/Adelaide Australia/Lord_Howe Australia/Sydney Europe/Berlin
    Europe/Dublin Europe/Moscow Pacific/Auckland Pacific/Chatham UTC
""".split()  # noqa: SIM905
FIXED = ((0, 0), (0, 30), (1, 30), (2, 0), (2, 15), (2, 30), (3, 0), (9, 0), (23, 45))
REPEATED = {
    "*/30 * * * *": (range(24), range(0, 60, 30)),
    "*/15 * * * *": (range(24), range(0, 60, 15)),
    "0 * * * *": (range(24), [0]),
    "45 * * * *": (range(24), [45]),
    "*/15 8 * * *": ([8], range(0, 60, 15)),
    "*/20 1,2 * * *": ([1, 2], range(0, 60, 20)),
}


def walked(zone: str, start: datetime, end: datetime) -> dict[str, list[datetime]]:
    """Return what is due in (start, end] by looking at the clock on the wall every minute.

    A fixed time that is jumped over is due right after the jump; of two the first one is.
    """
    here = ZoneInfo(zone)
    found: dict[str, list[datetime]] = {f"{minute} {hour} * * *": [] for hour, minute in FIXED}
    found |= {cron: [] for cron in REPEATED}
    before, now = start.astimezone(here), start
    while now < end:
        now += MINUTE
        local = now.astimezone(here)
        wall, next_wall = local.replace(tzinfo=None), before.replace(tzinfo=None) + MINUTE
        for hour, minute in FIXED:
            is_now = (local.hour, local.minute) == (hour, minute) and not local.fold
            if wall > next_wall:  # the clock was put forward
                days = {next_wall.date(), wall.date()}
                at = [datetime(it.year, it.month, it.day, hour, minute) for it in days]
                is_now = is_now or any(next_wall <= moment < wall for moment in at)
            if is_now:
                found[f"{minute} {hour} * * *"].append(now)
        for cron, (hours, minutes) in REPEATED.items():
            if local.hour in hours and local.minute in minutes:
                found[cron].append(now)
        before = local
    return found


def windows(zone: str) -> Iterator[tuple[datetime, datetime]]:
    """Yield three years; or, in an ordinary run, most of a day around the first changes of the clock."""
    if EVERYTHING:
        yield START, END
        return
    here, hours = ZoneInfo(zone), int((END - START) / HOUR)
    offsets = [(START + number * HOUR).astimezone(here).utcoffset() for number in range(hours)]
    changes = [number for number in range(1, hours) if offsets[number] != offsets[number - 1]]
    first = [START + number * HOUR for number in changes[:3] or [100]]
    yield from ((moment - DAY / 4, moment + DAY / 2) for moment in first)


@pytest.mark.sample(5)
@pytest.mark.parametrize("zone", ZONES)
def test_what_is_due_is_what_a_walk_minute_by_minute_finds(zone: str) -> None:
    for start, end in windows(zone):
        for cron, expected in walked(zone, start, end).items():
            due = takewhile(lambda it: it.astimezone(UTC) <= end, iter_occurrences(cron, zone, start))  # noqa: B023
            assert [it.astimezone(UTC) for it in due] == expected, (zone, cron, start)


@pytest.mark.sample(5)
@pytest.mark.parametrize("zone", ZONES)
def test_a_fixed_time_comes_once_on_every_local_day(zone: str) -> None:
    here = ZoneInfo(zone)
    days = [date(2025, 1, 2) + number * DAY for number in range(1000 if EVERYTHING else 400)]
    start = datetime(2025, 1, 1, 23, 59, tzinfo=here)
    for cron in ("30 2 * * *", "0 9 * * *"):
        due = iter_occurrences(cron, zone, start)
        assert [next(due).date() for _ in days] == days


@pytest.mark.parametrize(
    ("cron", "after", "due"),
    [
        ("0 9 * * 1-5", "2026-03-27T12:00:00+00:00", ["2026-03-30T09:00:00+02:00"]),
        ("0 9 * * 1-5", "2026-10-23T12:00:00+00:00", ["2026-10-26T09:00:00+01:00"]),
        ("30 2 * * *", "2026-03-28T12:00:00+00:00", ["2026-03-29T03:00:00+02:00"]),
        ("30 2 * * *", "2026-10-24T12:00:00+00:00", ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]),
        ("30 2 * * *", "2026-10-25T01:10:00+00:00", ["2026-10-26T02:30:00+01:00"]),
        ("*/30 * * * *", "2026-03-29T00:30:00+00:00", ["2026-03-29T03:00:00+02:00"]),
        (
            "*/30 * * * *",
            "2026-10-25T00:00:00+00:00",
            ["2026-10-25T02:30:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T02:30:00+01:00"],
        ),
        ("0,30 2 * * *", "2026-03-28T12:00:00+00:00", ["2026-03-29T03:00:00+02:00"]),
        ("0 12 L * *", "2026-02-01T00:00:00+00:00", ["2026-02-28T12:00:00+01:00"]),
        ("0 12 * * 5L", "2026-10-01T00:00:00+00:00", ["2026-10-30T12:00:00+01:00"]),
        ("@weekly", "2026-11-22T23:30:00+00:00", ["2026-11-29T00:00:00+01:00"]),
    ],
)
def test_daylight_saving_in_berlin(cron: str, after: str, due: list[str]) -> None:
    found = iter_occurrences(cron, "Europe/Berlin", datetime.fromisoformat(after))
    assert [next(found).isoformat() for _ in due] == due


def test_a_week_of_downtime_is_counted_and_grace_leaves_out_what_is_old() -> None:
    after, until = datetime(2026, 11, 16, 9, 30, tzinfo=UTC), datetime(2026, 11, 23, 9, 30, tzinfo=UTC)
    due = find_due_times("0 9 * * mon-fri", "Europe/Berlin", after, until)
    assert due
    assert (due.times, due.first.day, due.last.day) == (5, 17, 23)
    grace = timedelta(hours=2)
    young = find_due_times("0 9 * * *", "Europe/Berlin", after, until, grace=grace)
    assert young
    assert (young.times, young.last) == (1, due.last)
    assert find_due_times("0 9 * * *", "Europe/Berlin", after, until, grace=HOUR) is None
    assert find_due_times("* * * * *", "UTC", until, after) is None
    for cron in ("* * * * *", "* * 17,18 * *"):  # more than are counted; the last is the last all the same
        many = find_due_times(cron, "UTC", after, until)
        assert many
        assert many.times == 1000
        assert many.last == (until if cron == "* * * * *" else datetime(2026, 11, 18, 23, 59, tzinfo=UTC))


@pytest.mark.parametrize(
    ("cron", "says"),
    [
        ("0 9 * * mon-fir", 'did you mean "mon-fri"?'),
        ("@dayly", 'did you mean "@daily"?'),
        ("0 9 * *", "must have five fields, got 4"),
        ("0 0 9 * * 1", "must have five fields, got 6"),
        ("0 24 * * *", '"24" is not a valid hour (0-23)'),
        ("0 9 30 2 *", '"0 9 30 2 *" never occurs'),
        ("0 9 32 2 *", '"32" is not a valid day of the month'),
        ("0 9 * * fri-mon", "split the range at sat"),
        ("", "got 0 in"),
    ],
)
def test_a_wrong_expression_is_named_with_what_was_meant(cron: str, says: str) -> None:
    why = find_cron_error(cron)
    assert why
    assert says in " ".join(why)


@pytest.mark.parametrize(
    ("zone", "says"),
    [
        ("Europe/Berlni", "Europe/Berlin"),
        ("europe/berlin", "Europe/Berlin"),
        ("New York", "America/New_York"),
        ("/etc/passwd", "such as Europe/Berlin"),
        ("", "such as Europe/Berlin"),
    ],
)
def test_a_wrong_time_zone_is_named_with_the_nearest(zone: str, says: str) -> None:
    why = zone_error(zone)
    assert why
    assert says in why[1]


def test_a_schedule_in_words() -> None:
    assert describe_cron("@daily") == "At 00:00 every day"


def test_a_range_of_days_may_end_on_sunday() -> None:
    moments = takewhile(lambda it: it < START + 14 * DAY, iter_occurrences("0 9 * * fri-SUN", "UTC", START))
    assert [it.strftime("%a") for it in moments] == ["Fri", "Sat", "Sun"] * 2
    assert find_cron_error("0 9 * * fri-sun") is None
    assert describe_cron("0 9 * * fri-sun") == "At 09:00 on Friday through Sunday"
