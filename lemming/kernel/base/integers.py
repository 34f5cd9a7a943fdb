"""The one way to an integer that a model, a person, a header, a peer's message or a file name says. Pure.

Python's integers have no end, and its texts of integers do: a number of 4,301 digits can be computed and
written, and never read again. So a foreign integer has bounds before anything is computed with it, and a sum
of ticks ends at `LAST_TICK`. `tests/test_house_numbers.py` holds the code to it.
"""

from __future__ import annotations

import re

LAST_TICK = 10**12 - 1
"""The last tick there can be: file names have room for twelve digits."""
MOST = 10**15
"""The largest count, size or number of seconds that anything foreign may say: it fits a float exactly."""

_DIGITS = re.compile(r"(-?)0*([0-9]{1,19})")  # nineteen are more than any bound


def bounded_int(value: object, *, ge: int = 0, le: int = MOST) -> int | None:
    """Return a value that is an integer within its bounds; None for any other value.

    >>> bounded_int(7), bounded_int(True), bounded_int("7"), bounded_int(7.0), bounded_int(10**4000)
    (7, None, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if ge <= value <= le else None


def clamp_int(value: object, *, ge: int = 0, le: int = MOST) -> int | None:
    """Return an integer that is at least `ge`, and `le` in the place of a larger one; else None.

    For numbers of which more than the most means the same as the most: "wait for ever".

    >>> clamp_int(7, le=9), clamp_int(10**4000, le=9), clamp_int(-1, le=9), clamp_int(None, le=9)
    (7, 9, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < ge:
        return None
    return min(value, le)


def read_int(text: str | bytes, *, ge: int = 0, le: int = MOST) -> int | None:
    """Return the integer that a text of ASCII digits is, within its bounds; None for any other text.

    >>> read_int("0042"), read_int(" 42"), read_int("4_2"), read_int("-1", ge=-1), read_int("9" * 5000)
    (42, None, None, -1, None)
    """
    digits = text.decode("ascii", "replace") if isinstance(text, bytes) else text
    match = _DIGITS.fullmatch(digits)
    return bounded_int(int(match[1] + match[2]), ge=ge, le=le) if match else None


def to_int(digits: str | bytes) -> int:
    """Return the integer that a text is; raise `ValueError` for any other, and beyond the bounds.

    For texts that a pattern has matched, or of which a caller tells what is wrong.

    >>> to_int("-0042")
    -42
    """
    number = read_int(digits, ge=-MOST)
    if number is None:
        raise ValueError(f"a whole number of at most {MOST} was expected, got {digits[:40]!r}")
    return number


def add_ticks(tick: int, ticks: int) -> int:
    """Return the tick that is so many ticks later, which is never beyond the last one there can be."""
    return min(tick + ticks, LAST_TICK)
