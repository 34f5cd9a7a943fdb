"""Untrusted patterns of names, in which `*` stands for any text. Pure.

`json_schema.schema_patterns` has the untrusted regular expressions. No other module searches by a foreign pattern
(tests/test_house.py): in both the search time is bounded for any pattern.
"""

from __future__ import annotations

from collections.abc import Iterable


class InvalidPattern(ValueError):
    """Raised for an unusable pattern; the message has the reason."""


def is_match(name: str, pattern: str) -> bool:
    """Return True if a name matches a pattern, in which `*` stands for any text.

    >>> is_match("weather_now", "weather_*"), is_match("mcp.files.read", "mcp.files"), is_match("a", "a")
    (True, False, True)
    """
    first, *between = pattern.split("*")
    if not between:
        return name == pattern
    last = between.pop()
    if len(name) < len(first) + len(last) or not (name.startswith(first) and name.endswith(last)):
        return False
    # The first match is the best for each part: whatever matches after a later one matches after it too.
    at, end = len(first), len(name) - len(last)
    for part in between:
        at = name.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


def is_any_match(name: str, patterns: Iterable[str]) -> bool:
    """Return True if a name matches at least one pattern."""
    return any(name == pattern or ("*" in pattern and is_match(name, pattern)) for pattern in patterns)
