"""Equality of JSON values. Pure."""

from __future__ import annotations

import json
from typing import Any


def is_equal_json(first: Any, second: Any) -> bool:
    """Return True for equal JSON values, in any order of keys.

    Unlike `==`, it distinguishes `true` from `1`: consent to one value is not consent to the other.

    >>> is_equal_json(dict(a=1, b=[2]), dict(b=[2], a=1)), is_equal_json({"live": 1}, {"live": True})
    (True, False)
    """
    return bool(first == second) and _canonical(first) == _canonical(second)


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
