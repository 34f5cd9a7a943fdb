"""Replacement of texts in a JSON value without losing values. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with the texts changed, including keys. Keys that become equal are numbered.

    >>> map_texts(dict(a1=1, a2=["a3"], a=2), lambda text: text[:1])
    {'a (2)': 1, 'a (3)': ['a'], 'a': 2}
    """
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        changed = {change(key) if isinstance(key, str) else key: map_texts(item, change)
                   for key, item in value.items()}  # fmt: skip
        return changed if len(changed) == len(value) else _map_keys(value, change)
    return [map_texts(item, change) for item in value] if isinstance(value, (list, tuple)) else value


def _map_keys(value: dict[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    """Return an object with changed texts and distinct keys; unchanged keys keep their names."""
    renamed = {key: change(key) if isinstance(key, str) else key for key in value}
    used_names, changed = {key for key, name in renamed.items() if name == key}, {}
    for key, item in value.items():
        name, number = renamed[key], 1
        while name != key and name in used_names:
            number += 1
            name = f"{renamed[key]} ({number})"
        used_names.add(name)
        changed[name] = map_texts(item, change)
    return changed
