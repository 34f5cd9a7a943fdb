"""Objects that belong to another one, such as an organisation or a turn, and are made on first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeVar

T = TypeVar("T")


class ObjectCache:
    """Owner of objects that are made of it: each module keeps its knowledge about the owner in a small class."""

    __slots__ = ()
    _caches: dict[Any, Any]

    def get_cache(self, make: Callable[[Self], T]) -> T:
        """Return the single object that a class or function makes of this one, made at the first call."""
        if make not in self._caches:
            self._caches.setdefault(make, make(self))  # for two threads the same one
        cached: T = self._caches[make]
        return cached
