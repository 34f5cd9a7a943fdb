"""What providers say of their rate limits in the headers of an answer. Pure.

OpenAI, and those who do as it does: `x-ratelimit-remaining-requests: 0` beside `x-ratelimit-reset-requests:
6m0s`. Anthropic: `anthropic-ratelimit-tokens-remaining: 0` beside `anthropic-ratelimit-tokens-reset:` and a
moment, as in RFC 3339. A refused call is told `retry-after`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from lemming.kernel.providers import Reply

_FIRST_EPOCH_S, _FIRST_EPOCH_MS = 1e9, 1e12
"""From here on a number is a moment, in seconds or milliseconds since 1970."""
_UNITS_S = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|us|µs|ns|d|h|m|s)")
_DURATION = re.compile(rf"(?:{_PART.pattern})+\Z")


def rest_s(headers: Iterable[tuple[bytes, bytes]]) -> float:
    """Return for how many seconds nothing remains of some limit; 0 where something does, or nothing is said.

    >>> rest_s([(b"x-ratelimit-remaining-tokens", b"0"), (b"x-ratelimit-reset-tokens", b"1m2.5s")])
    62.5
    >>> rest_s([(b"x-ratelimit-remaining-tokens", b"9"), (b"x-ratelimit-reset-tokens", b"1m2.5s")])
    0.0
    """
    said = {
        name.lower().decode("latin-1"): value.decode("latin-1").strip()
        for name, value in headers
        if b"ratelimit" in name.lower() or name.lower() == b"date"
    }
    spent = [name for name in said if "remaining" in name and _is_spent(said, name)]
    return max((_until_s(said, name.replace("remaining", "reset")) for name in spent), default=0.0)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the wait that a response asks for: milliseconds, seconds, or a date after its own date.

    Format: RFC 9110, section 10.2.3.

    >>> retry_after_s({"retry-after": "2"})
    2.0
    """
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * unit_s
        except (KeyError, ValueError):
            continue
        return seconds if math.isfinite(seconds) and seconds >= 0 else None
    try:
        until, now = (parsedate_to_datetime(headers[name]) for name in ("retry-after", "date"))
        return max(0.0, (until - now).total_seconds())
    except (KeyError, ValueError, TypeError):
        return None


def refused_for_s(headers: Mapping[str, str]) -> float | None:
    """Return the wait that a refused call is told, or else by what is said of the limits; None: nothing."""
    told_s = retry_after_s(headers)
    if told_s is not None:
        return told_s
    raw = ((name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items())
    return rest_s(raw) or None


def with_rest(reply: Reply, headers: Any) -> Reply:
    """Return a reply with what the headers of an `httpx` answer say of the next calls."""
    seconds = rest_s(headers.raw)
    return reply._replace(rest_s=seconds) if seconds else reply


def _is_spent(said: Mapping[str, str], name: str) -> bool:
    """Return True where nothing remains of a limit, and there is one."""
    limit = said.get(name.replace("remaining", "limit"), "")
    try:
        return float(said[name]) <= 0 and (not limit or float(limit) > 0)
    except ValueError:
        return False


def _until_s(said: Mapping[str, str], name: str) -> float:
    """Return the seconds until a limit is reset, of which a header says the duration, or the moment."""
    value = said.get(name, "")
    try:
        if _DURATION.match(value):
            seconds = _duration_s(value)
        elif not value.replace(".", "", 1).isdecimal():
            seconds = _after_answer_s(said, datetime.fromisoformat(value))
        elif (number := float(value)) < _FIRST_EPOCH_S:
            seconds = number
        else:
            since_1970_s = number if number < _FIRST_EPOCH_MS else number / 1000
            seconds = _after_answer_s(said, datetime.fromtimestamp(since_1970_s, UTC))
    except (ValueError, TypeError, OverflowError, OSError):
        return 0.0
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0


def _duration_s(value: str) -> float:
    return sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(value))


def _after_answer_s(said: Mapping[str, str], moment: datetime) -> float:
    """Return how long after the answer's own date a moment is: this machine's clock may be another."""
    return (moment - parsedate_to_datetime(said.get("date", ""))).total_seconds()
