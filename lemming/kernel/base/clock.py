"""Wall-clock time as a value that is read once and recorded, never read inside a tick's logic."""

from __future__ import annotations

import time
from datetime import MAXYEAR, MINYEAR, UTC, datetime
from functools import cache, lru_cache
from typing import Protocol


class Clock(Protocol):
    """Source of the time of day for the engine. The engine never orders anything by it."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        ...

    @property
    def boot_id(self) -> str:
        """Identifier of the machine's current uptime, which a power cut ends. Empty if unknown."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return datetime.now(UTC)

    @property
    def boot_id(self) -> str:
        """Linux's boot id; empty on other systems."""
        return _boot_id()


@cache
def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def timestamp(moment: datetime) -> str:
    """Return a time in the format of all files: UTC, milliseconds, `Z`.

    >>> timestamp(datetime(2025, 12, 8, 10, 30, tzinfo=UTC))
    '2025-12-08T10:30:00.000Z'
    """
    utc = moment.astimezone(UTC)
    minute = _minute(utc.year, utc.month, utc.day, utc.hour, utc.minute)
    return f"{minute}:{utc.second:02}.{utc.microsecond // 1000:03}Z"


@lru_cache(maxsize=16)  # many are written in one minute
def _minute(*utc: int) -> str:
    return "{:04}-{:02}-{:02}T{:02}:{:02}".format(*utc)


def parse_timestamp(text: str) -> datetime:
    """Return the time in a timestamp. Raise `ValueError` for an invalid timestamp.

    Times in the first or the last year of the calendar are invalid, because they do not exist in every time
    zone.
    """
    moment = datetime.fromisoformat(text)
    if not is_representable(moment):
        raise ValueError(f"{text} is too close to an end of the calendar")
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def is_representable(moment: datetime) -> bool:
    """Return True if a time can be represented in every time zone."""
    return MINYEAR < moment.year < MAXYEAR


def is_timestamp(text: object) -> bool:
    """Return True for a text in the format of `timestamp`. As texts, timestamps sort in the order of time.

    >>> is_timestamp("2025-12-08T10:30:00.000Z"), is_timestamp("2025-12-08 10:30")
    (True, False)
    """
    try:
        return isinstance(text, str) and timestamp(parse_timestamp(text)) == text
    except (ValueError, OverflowError):
        return False


def elapsed_ms(since: float) -> int:
    """Return the whole milliseconds since a `time.perf_counter()` reading."""
    return round((time.perf_counter() - since) * 1000)
