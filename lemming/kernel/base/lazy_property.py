"""A lazily computed property: `functools.cached_property` without its per-value lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class lazy_property(Generic[T]):  # noqa: N801 - used like a decorator
    """A property computed on first access and then stored."""

    def __init__(self, work: Callable[[Any], T]) -> None:
        self._work, self._name, self.__doc__ = work, work.__name__, work.__doc__

    def __get__(self, instance: Any, _: type[Any] | None = None) -> T:
        value = instance.__dict__[self._name] = self._work(instance)
        return value
