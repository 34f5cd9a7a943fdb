"""Whether two values are the same JSON. Pure."""

from __future__ import annotations

import json
from typing import Any


def is_same(one: Any, other: Any) -> bool:
    """Return True for values that are the same JSON, whatever the order of their keys.

    Other than `==` it tells `true` from `1`: who agreed to one did not agree to the other.

    >>> is_same({"a": 1, "b": [2]}, {"b": [2], "a": 1}), is_same({"live": 1}, {"live": True})
    (True, False)
    """
    return bool(one == other) and _canonical(one) == _canonical(other)


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
