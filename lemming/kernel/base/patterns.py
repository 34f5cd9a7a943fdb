"""Patterns that somebody else wrote: names with `*` here, expressions in the modules beside.

Nothing else in the package searches by a pattern that is not its own (tests/test_house.py): these take a time
that a pattern cannot draw out.
"""

from __future__ import annotations

from collections.abc import Iterable


class NoExpression(ValueError):
    """A pattern cannot be used; the message says why."""


def is_named(name: str, pattern: str) -> bool:
    """Return whether a pattern, in which `*` stands for any text, is that of a name.

    >>> is_named("weather_now", "weather_*"), is_named("mcp.files.read", "mcp.files"), is_named("a", "a")
    (True, False, True)
    """
    first, *between = pattern.split("*")
    if not between:
        return name == pattern
    last = between.pop()
    if len(name) < len(first) + len(last) or not (name.startswith(first) and name.endswith(last)):
        return False
    # What stands first is the best place for each: whatever fits after a later one fits after it too.
    at, end = len(first), len(name) - len(last)
    for part in between:
        at = name.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


def is_among(name: str, patterns: Iterable[str]) -> bool:
    """Return whether one of the patterns is that of a name."""
    return any(name == pattern or ("*" in pattern and is_named(name, pattern)) for pattern in patterns)
