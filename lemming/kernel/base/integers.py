"""Bounded parsing of integers from models, people, headers, peers and file names. Pure.

Python's integers are unbounded, but their texts are not: a number of 4,301 digits can be computed and
written, and never read again. Therefore a foreign integer is bounded before any computation, and a sum of
ticks ends at `LAST_TICK`. `tests/test_house_numbers.py` enforces this rule.
"""

from __future__ import annotations

import re

LAST_TICK = 10**12 - 1
"""The last tick there can be: file names have room for twelve digits."""
MAX_INT = 10**15
"""The largest count, size or number of seconds that anything foreign may say: it fits a float exactly."""

_DIGITS = re.compile(r"(-?)0*([0-9]{1,19})")  # nineteen are more than any bound


def bounded_int(value: object, *, ge: int = 0, le: int = MAX_INT) -> int | None:
    """Return a value if it is an integer within the bounds, else None.

    >>> bounded_int(7), bounded_int(True), bounded_int("7"), bounded_int(7.0), bounded_int(10**4000)
    (7, None, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if ge <= value <= le else None


def clamp_int(value: object, *, ge: int = 0, le: int = MAX_INT) -> int | None:
    """Return an integer of at least `ge`, limited to `le`, or None for any other value.

    For numbers whose excess has no meaning beyond the maximum: "wait for ever".

    >>> clamp_int(7, le=9), clamp_int(10**4000, le=9), clamp_int(-1, le=9), clamp_int(None, le=9)
    (7, 9, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < ge:
        return None
    return min(value, le)


def parse_int(text: str | bytes, *, ge: int = 0, le: int = MAX_INT) -> int | None:
    """Return the integer in a text of ASCII digits within the bounds, or None for any other text.

    >>> parse_int("0042"), parse_int(" 42"), parse_int("4_2"), parse_int("-1", ge=-1), parse_int("9" * 5000)
    (42, None, None, -1, None)
    """
    digits = text.decode("ascii", "replace") if isinstance(text, bytes) else text
    match = _DIGITS.fullmatch(digits)
    return bounded_int(int(match[1] + match[2]), ge=ge, le=le) if match else None


def to_int(digits: str | bytes) -> int:
    """Return the integer in a text. Raise `ValueError` for any other text, and beyond the bounds.

    For texts already matched by a pattern, or whose caller reports the error.

    >>> to_int("-0042")
    -42
    """
    number = parse_int(digits, ge=-MAX_INT)
    if number is None:
        raise ValueError(f"expected a whole number of at most {MAX_INT}, got {digits[:40]!r}")
    return number


def add_ticks(tick: int, ticks: int) -> int:
    """Return the tick `ticks` after `tick`, at most `LAST_TICK`."""
    return min(tick + ticks, LAST_TICK)
