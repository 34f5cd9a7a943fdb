"""Moments as people read them. Pure, and the same in every locale."""

from __future__ import annotations

from datetime import datetime

from lemming.kernel.base.times.zones import zone

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def moment_in_words(moment: datetime) -> str:
    """Return a moment in its own time zone.

    >>> from datetime import UTC
    >>> moment_in_words(datetime(2026, 11, 23, 8, tzinfo=UTC).astimezone(zone("Europe/Berlin")))
    'Mon 23 Nov 2026 09:00 CET'
    """
    day, month = DAYS[moment.weekday()][:3], MONTHS[moment.month - 1][:3]
    return f"{day} {moment.day} {month} {moment.year} {moment:%H:%M} {moment.tzname()}"


def full_moment_text(moment: datetime, zone_name: str) -> str:
    """Return a moment for a prompt: weekday, date, time and time zone.

    >>> from datetime import UTC
    >>> full_moment_text(datetime(2026, 11, 23, 8, tzinfo=UTC), "Europe/Berlin")
    'Monday, 23 November 2026, 09:00 CET (2026-11-23T09:00+01:00, Europe/Berlin)'
    """
    here = moment.astimezone(zone(zone_name))
    day, month = DAYS[here.weekday()], MONTHS[here.month - 1]
    iso = here.isoformat(timespec="minutes")
    return f"{day}, {here.day} {month} {here.year}, {here:%H:%M} {here.tzname()} ({iso}, {zone_name})"


def until_text(moment: datetime, now: datetime) -> str:
    """Return how far off a moment is, to the largest unit of which it is at least one, rounded down.

    >>> from datetime import UTC, timedelta
    >>> now = datetime(2026, 11, 22, 14, tzinfo=UTC)
    >>> until_text(now + timedelta(hours=19, minutes=5), now), until_text(now, now)
    ('in 19 h', 'now')
    >>> until_text(now - timedelta(days=2), now)
    '2 d ago'
    """
    seconds = int((moment - now).total_seconds())
    for size, unit in _UNITS:
        if abs(seconds) >= size:
            return f"in {seconds // size} {unit}" if seconds > 0 else f"{-seconds // size} {unit} ago"
    return "now"
