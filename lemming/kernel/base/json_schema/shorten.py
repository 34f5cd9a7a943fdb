"""A JSON Schema as a prompt needs it: what tells a model nothing is left out. Pure.

The long schema stays what calls are checked by. Every value that fits the short one fits the long one, but
for objects that have keys nobody named: these the check refuses in words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SILENT = frozenset({"title", "$schema", "$id", "$comment"})
"""Annotations that repeat a name, or speak to programs."""
_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose keys are names and whose values are schemas."""
_LISTS = frozenset({"anyOf", "allOf", "oneOf", "prefixItems"})
_INNER = frozenset({
    "items", "additionalProperties", "contains", "not", "if", "then", "else", "propertyNames",
    "unevaluatedItems", "unevaluatedProperties",
})  # fmt: skip
_NULL = {"type": "null"}


def shorten_schema(schema: Any) -> Any:
    """Return a schema without titles, dialects, empty texts and lists, and words about unknown keys.

    An optional property that may also be null, which is its default, is shown without the null.

    >>> shorten_schema({"$schema": "x", "title": "T", "type": "object", "additionalProperties": False,
    ...                 "properties": {"title": {"title": "T", "type": ["string", "null"], "default": None}}})
    {'type': 'object', 'properties': {'title': {'type': 'string'}}}
    """
    if not isinstance(schema, Mapping):
        return schema
    required = schema.get("required")
    names = required if isinstance(required, list) else ()
    short: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _SILENT or _says_nothing(key, value):
            continue
        if key == "properties" and isinstance(value, Mapping):
            short[key] = {
                name: _shorten_property(it, is_required=name in names) for name, it in value.items()
            }
        elif key in _MAPS and isinstance(value, Mapping):
            short[key] = {name: shorten_schema(it) for name, it in value.items()}
        elif key in _LISTS and isinstance(value, list):
            short[key] = [*map(shorten_schema, value)]
        elif key in _INNER:
            short[key] = shorten_schema(value)
        else:  # values of others, such as those of `default`, `enum` and `examples`, stay as they are
            short[key] = value
    if schema.get("additionalProperties") is False and "properties" not in short:
        short["properties"] = {}  # a grammar would take any keys else
    return short


def _says_nothing(key: str, value: Any) -> bool:
    if key in ("additionalProperties", "unevaluatedProperties"):
        return isinstance(value, bool)
    if key == "description":
        return not (isinstance(value, str) and value.strip())
    return (key == "required" and value == []) or (key in _MAPS and value == {} and key != "properties")


def _shorten_property(schema: Any, *, is_required: bool) -> Any:
    short = shorten_schema(schema)
    if is_required or not isinstance(short, dict) or short.get("default", 0) is not None:
        return short
    del short["default"]
    kinds = short.get("type")
    if isinstance(kinds, list) and "null" in kinds and len(kinds) > 1:
        others = [kind for kind in kinds if kind != "null"]
        return {**short, "type": others[0] if len(others) == 1 else others}
    branches = short.get("anyOf")
    if not isinstance(branches, list) or _NULL not in branches:
        return short
    others = [branch for branch in branches if branch != _NULL]
    if len(others) == 1 and isinstance(others[0], dict):
        del short["anyOf"]
        return {**others[0], **short}
    return {**short, "anyOf": others} if others else short
