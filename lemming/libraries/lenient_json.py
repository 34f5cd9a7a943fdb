"""JSON from programs, models and people, which may be malformed."""

from __future__ import annotations

from typing import Any

from lemming.kernel.base.jsontext import DEFAULT_LIMIT_BYTES, JsonProblem, parse


def parse_or_default(raw: bytes | str, default: Any, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Any:
    """Parse one strict JSON text, or return the default for anything else.

    >>> parse_or_default("[1]", None), parse_or_default("[1", "malformed")
    ([1], 'malformed')
    """
    try:
        return parse(raw, limit_bytes=limit_bytes)
    except JsonProblem:
        return default


def parse_object_or_empty(raw: bytes | str) -> dict[str, Any]:
    """Parse a JSON object, or return an empty object for anything else.

    >>> parse_object_or_empty('{"a": 1}'), parse_object_or_empty("[1]"), parse_object_or_empty("{")
    ({'a': 1}, {}, {})
    """
    value = parse_or_default(raw, None)
    return value if isinstance(value, dict) else {}
