"""Names in which `*` stands for any text."""

from __future__ import annotations

import re
from collections.abc import Iterable


def is_named(name: str, pattern: str) -> bool:
    """Return whether a pattern, in which `*` stands for any text, is that of a name.

    >>> is_named("weather_now", "weather_*"), is_named("mcp.files.read", "mcp.files"), is_named("a", "a")
    (True, False, True)
    """
    if "*" not in pattern:
        return name == pattern
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None


def is_among(name: str, patterns: Iterable[str]) -> bool:
    """Return whether one of the patterns is that of a name."""
    return any(is_named(name, pattern) for pattern in patterns)
