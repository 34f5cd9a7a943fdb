"""Shortened JSON Schemas for prompts, without parts meaningless to a model. Pure.

Calls are still validated against the long schema. Every value valid under the short schema is valid under the
long schema, except for objects with undeclared keys, which validation rejects with a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SILENT = frozenset({"title", "$schema", "$id", "$comment"})
"""Annotations that repeat a name, or speak to programs."""
_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords with names as keys and schemas as values."""
_LISTS = frozenset({"anyOf", "allOf", "oneOf", "prefixItems"})
_INNER = frozenset({
    "items", "additionalProperties", "contains", "not", "if", "then", "else", "propertyNames",
    "unevaluatedItems", "unevaluatedProperties",
})  # fmt: skip
_NULL = {"type": "null"}


def shorten_schema(schema: Any) -> Any:
    """Return a schema without titles, dialects, empty texts and lists, and rules about unknown keys.

    An optional property with null as the default is shown without the null.

    >>> title = dict(title="T", type=["string", "null"], default=None)
    >>> shorten_schema(dict(title="T", type="object", additionalProperties=False, properties={"title": title}))
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
                name: _shorten_property(subschema, is_required=name in names) for name, subschema in value.items()
            }
        elif key in _MAPS and isinstance(value, Mapping):
            short[key] = {name: shorten_schema(subschema) for name, subschema in value.items()}
        elif key in _LISTS and isinstance(value, list):
            short[key] = [*map(shorten_schema, value)]
        elif key in _INNER:
            short[key] = shorten_schema(value)
        else:  # data values, such as those of `default`, `enum` and `examples`, stay unchanged
            short[key] = value
    if schema.get("additionalProperties") is False and "properties" not in short:
        short["properties"] = {}  # otherwise a grammar would accept any keys
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
        alternatives = [kind for kind in kinds if kind != "null"]
        return {**short, "type": alternatives[0] if len(alternatives) == 1 else alternatives}
    branches = short.get("anyOf")
    if not isinstance(branches, list) or _NULL not in branches:
        return short
    alternatives = [branch for branch in branches if branch != _NULL]
    if len(alternatives) == 1 and isinstance(alternatives[0], dict):
        del short["anyOf"]
        return {**alternatives[0], **short}
    return {**short, "anyOf": alternatives} if alternatives else short
