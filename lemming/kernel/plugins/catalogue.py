"""Read-only mapping of an organisation's tools or providers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, TypeVar

T = TypeVar("T")


class Catalogue(Mapping[str, T]):
    """Tools or providers of an organisation by name, sorted; shipped ones are imported on first access.

    `shipped` holds import paths ("module:name"); `make` converts an imported object into a value.
    """

    def __init__(self, shipped: Mapping[str, str], registered: Mapping[str, T], make: Callable[[Any], T]) -> None:
        self._shipped, self._make = shipped, make
        self.registered = registered
        self._loaded = {**registered}
        self._names = sorted({*shipped, *registered})

    def __getitem__(self, name: str) -> T:
        if name not in self._loaded:
            module, _, attribute = self._shipped[name].partition(":")
            self._loaded[name] = self._make(getattr(import_module(module), attribute))
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._loaded or name in self._shipped

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
