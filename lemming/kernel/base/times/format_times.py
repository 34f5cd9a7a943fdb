"""Human-readable times. Pure, and the same in every locale."""

from __future__ import annotations

from datetime import datetime

from lemming.kernel.base.times.zones import get_zone

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
