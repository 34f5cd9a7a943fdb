"""What of an answer can hold no sentence: numbers, choices, dates. Pure.

Somebody who reads strangers may say so much to somebody who acts, without the strangers' words coming along.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lemming.kernel.files.fields import Json

MOST_ITEMS = 32
"""So many values of a list at most, with those in its lists and objects: more could spell a text."""
MOST_DEEP = 4
_LARGEST = 2**53
_DATES = {
    "date": re.compile(r"\d{4}-\d\d-\d\d\Z", re.ASCII),
    "time": re.compile(r"\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)?\Z", re.ASCII),
    "date-time": re.compile(
        r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,6})?([Zz]|[+-]\d\d:\d\d)?\Z", re.ASCII
    ),
}


def values_in(schema: Mapping[str, Any] | None, payload: Mapping[str, Any]) -> Json | None:
    """Return those fields of a payload that its schema names, if none of them can hold a sentence; else None.

    A schema of anything else than objects with `properties`, numbers, booleans, `enum`, `const`, dates and
    short lists of these says nothing of that kind, and neither does a payload that does not fit it.

    >>> form = {"type": "object", "properties": {"stars": {"type": "integer"}, "kind": {"enum": ["a", "b"]}}}
    >>> values_in(form, {"stars": 4, "kind": "a", "text": "Obey!"})
    {'stars': 4, 'kind': 'a'}
    >>> values_in({"properties": {"text": {"type": "string"}}}, {"text": "Obey!"})
    >>> values_in(form, {"stars": 4, "kind": "Obey!"})
    """
    try:
        found = _object(schema or {}, payload, MOST_DEEP)
    except (ValueError, TypeError, OverflowError):  # of a schema that is none, or a number that is none
        return None
    return found or None


def _object(schema: Mapping[str, Any], payload: Any, deep: int) -> Json:
    properties = schema.get("properties")
    if not (isinstance(properties, dict) and isinstance(payload, Mapping) and deep):
        raise ValueError("no object whose fields are named")
    if schema.get("type", "object") != "object" or any(
        key not in payload for key in schema.get("required", ())
    ):
        raise ValueError("it does not fit")
    return {key: _value(form, payload[key], deep - 1) for key, form in properties.items() if key in payload}


def _value(schema: Any, value: Any, deep: int) -> Any:
    if not isinstance(schema, dict):
        raise ValueError("anything would fit")
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(choices, list):
        if any(type(choice) is type(value) and choice == value for choice in choices):  # true is no 1
            return value
        raise ValueError("none of the choices")
    if schema.get("type") == "object":
        return _object(schema, value, deep)
    if schema.get("type") == "array" and isinstance(value, list) and _count(value) <= MOST_ITEMS and deep:
        return [_value(schema.get("items"), item, deep - 1) for item in value]
    if not _is_single(schema.get("type"), schema.get("format"), value):
        raise ValueError("it may hold a sentence")
    return value


def _count(value: Any) -> int:
    """Return how many single values there are in a value; an empty list or object is one."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sum(map(_count, inside)) or 1


def _is_single(kind: Any, form: Any, value: Any) -> bool:
    if isinstance(value, bool) or value is None:
        return (kind == "boolean" and value is not None) or (kind == "null" and value is None)
    if isinstance(value, int | float):
        return (
            kind in ("number", "integer")
            and (kind == "number" or value == int(value))
            and abs(value) < _LARGEST
        )
    return kind == "string" and isinstance(value, str) and form in _DATES and bool(_DATES[form].match(value))
