"""A JSON value with its texts changed, and nothing lost of it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with its texts changed, keys included; keys that become alike are numbered.

    >>> with_texts({"a1": 1, "a2": ["a3"], "a": 2}, lambda text: text[:1])
    {'a (2)': 1, 'a (3)': ['a'], 'a': 2}
    """
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        changed = {change(key) if isinstance(key, str) else key: with_texts(item, change)
                   for key, item in value.items()}  # fmt: skip
        return changed if len(changed) == len(value) else _with_keys_apart(value, change)
    return [with_texts(item, change) for item in value] if isinstance(value, (list, tuple)) else value


def _with_keys_apart(value: dict[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    """Return an object as `with_texts` does; a key that stays as it is keeps its name before all others."""
    renamed = {key: change(key) if isinstance(key, str) else key for key in value}
    taken, changed = {key for key, name in renamed.items() if name == key}, {}
    for key, item in value.items():
        name, number = renamed[key], 1
        while name != key and name in taken:
            number += 1
            name = f"{renamed[key]} ({number})"
        taken.add(name)
        changed[name] = with_texts(item, change)
    return changed
