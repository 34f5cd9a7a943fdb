"""Recently reported values, to report each once. Problems often contain a tick, so old values are dropped."""

from __future__ import annotations

from collections.abc import Hashable

MAX_VALUES = 1000


class RecentValues:
    """The most recently added values, at most `MAX_VALUES`."""

    def __init__(self) -> None:
        self._values: dict[Hashable, None] = {}

    def add(self, value: Hashable) -> bool:
        """Add a value; return True if the value is new."""
        is_new = value not in self._values
        self._values[value] = None
        if len(self._values) > MAX_VALUES:
            del self._values[next(iter(self._values))]
        return is_new
