"""Rate limits in the headers of an answer. Pure.

OpenAI and compatible servers: `x-ratelimit-remaining-requests: 0` beside `x-ratelimit-reset-requests: 6m0s`.
Anthropic: `anthropic-ratelimit-tokens-remaining: 0` beside `anthropic-ratelimit-tokens-reset:` and an RFC
3339 timestamp. A rejected call has `retry-after`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from lemming.kernel.providers import Reply

_MIN_EPOCH_S, _MIN_EPOCH_MS = 1e9, 1e12
"""From here on a number is a moment, in seconds or milliseconds since 1970."""
_UNITS_S = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|us|µs|ns|d|h|m|s)")
_DURATION = re.compile(rf"(?:{_PART.pattern})+\Z")


def limit_wait_s(headers: Mapping[str, str]) -> float:
    """Return the seconds until every exhausted limit is reset, or 0 without an exhausted limit.

    >>> limit_wait_s({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1m2.5s"})
    62.5
    >>> limit_wait_s({"x-ratelimit-remaining-tokens": "9", "x-ratelimit-reset-tokens": "1m2.5s"})
    0.0
    """
    lower_names = ((name.lower(), value.strip()) for name, value in headers.items())
    limit_headers = {name: value for name, value in lower_names if "ratelimit" in name or name == "date"}
    exhausted = [name for name in limit_headers if "remaining" in name and _is_exhausted(limit_headers, name)]
    return max((_reset_wait_s(limit_headers, name.replace("remaining", "reset")) for name in exhausted), default=0.0)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the wait requested by a response: milliseconds, seconds, or a date relative to the response
    date.

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
        retry_time, response_time = (parsedate_to_datetime(headers[name]) for name in ("retry-after", "date"))
        return max(0.0, (retry_time - response_time).total_seconds())
    except (KeyError, ValueError, TypeError):
        return None


def rejection_wait_s(headers: Mapping[str, str]) -> float | None:
    """Return the wait after a rejected call, from `retry-after` or else from the limits, or None."""
    requested_s = retry_after_s(headers)
    return limit_wait_s(headers) or None if requested_s is None else requested_s


def with_limit_wait(reply: Reply, headers: Mapping[str, str]) -> Reply:
    """Return a reply with the wait from the rate limits in the headers of an answer."""
    seconds = limit_wait_s(headers)
    return reply._replace(rest_s=seconds) if seconds else reply


def _is_exhausted(limit_headers: Mapping[str, str], name: str) -> bool:
    """Return True if a limit exists and nothing of it remains."""
    limit = limit_headers.get(name.replace("remaining", "limit"), "")
    try:
        return float(limit_headers[name]) <= 0 and (not limit or float(limit) > 0)
    except ValueError:
        return False


def _reset_wait_s(limit_headers: Mapping[str, str], name: str) -> float:
    """Return the seconds until a limit is reset, from a duration or a timestamp in a header."""
    value = limit_headers.get(name, "")
    try:
        if _DURATION.match(value):
            seconds = sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(value))
        elif not value.replace(".", "", 1).isdecimal():
            seconds = _seconds_after_answer(limit_headers, datetime.fromisoformat(value))
        elif (number := float(value)) < _MIN_EPOCH_S:
            seconds = number
        else:
            since_1970_s = number if number < _MIN_EPOCH_MS else number / 1000
            seconds = _seconds_after_answer(limit_headers, datetime.fromtimestamp(since_1970_s, UTC))
    except (ValueError, TypeError, OverflowError, OSError):
        return 0.0
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0


def _seconds_after_answer(limit_headers: Mapping[str, str], reset_time: datetime) -> float:
    """Return the seconds from the answer's own date to a time. This machine's clock may differ."""
    return (reset_time - parsedate_to_datetime(limit_headers.get("date", ""))).total_seconds()
