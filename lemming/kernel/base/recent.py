"""Values that came up lately, so that each is told once. Many a problem names its tick: old ones go."""

from __future__ import annotations

from collections.abc import Hashable

REMEMBERED = 1000


class RecentValues:
    """The newest values that were added, at most `REMEMBERED`."""

    def __init__(self) -> None:
        self._values: dict[Hashable, None] = {}

    def add(self, value: Hashable) -> bool:
        """Remember a value; return whether it is new."""
        is_new = value not in self._values
        self._values[value] = None
        if len(self._values) > REMEMBERED:
            del self._values[next(iter(self._values))]
        return is_new
