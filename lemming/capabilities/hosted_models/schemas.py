"""JSON Schemas in the subset of hosted servers, and unwrapping of replies. Pure.

Source: "Supported schemas" in OpenAI's guide to structured outputs. The root is an object and no `anyOf`,
each object is closed and requires all its properties, and texts may have only `pattern` and `format`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lemming.kernel.base.jsontext import JsonProblem, parse, to_line

WRAPPER = "action"
"""The one property of the object around a schema without an object root: one of several actions, or a list."""

_WRAPPED = re.compile(r'\s*\{\s*"action"\s*:\s*[{\[]')
_UNSUPPORTED = ("minLength", "maxLength")
_VALUE_KEYWORDS = ("enum", "const", "default", "required")
"""Keywords that hold values and no schemas."""
_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number"}


def to_object_root(schema: Mapping[str, Any], *, has_const: bool = True) -> dict[str, Any]:
    """Return a schema in the subset with an object at its root. Another root is wrapped in an object.

    Without `has_const`, a constant becomes an enumeration of one value: Gemini's documented subset has no
    `const` and ignores unsupported keywords.

    >>> to_object_root({"anyOf": [{"type": "null"}]})["properties"]
    {'action': {'anyOf': [{'type': 'null'}]}}
    """
    subset: dict[str, Any] = _to_subset(schema, has_const)
    if subset.get("type") == "object" and "anyOf" not in subset:
        return subset
    return {"type": "object", "properties": {WRAPPER: subset}, "required": [WRAPPER], "additionalProperties": False}


def unwrap_reply(text: str) -> str:
    """Return a reply without the wrapper object of `to_object_root` around an action or a list of actions.

    The text alone decides, so a batch and a stream are read alike. A reply in another form stays unchanged,
    and the turn reports the error.

    >>> unwrap_reply('{"action": {"do": "done"}}'), unwrap_reply('{"action": "buy"}')
    ('{"do": "done"}', '{"action": "buy"}')
    """
    if not _WRAPPED.match(text):
        return text
    try:
        plain = parse(text)
    except JsonProblem:
        return text
    inner = plain.get(WRAPPER) if isinstance(plain, dict) and len(plain) == 1 else None
    actions = inner if isinstance(inner, list) else [inner]
    are_actions = all(isinstance(action, dict) and ("do" in action or "name" in action) for action in actions)
    return to_line(inner) if are_actions else text


def is_strict(schema: object) -> bool:
    """Return True if each object of a schema is closed and requires all of its properties.

    >>> is_strict({"anyOf": [dict(type="object", properties={"a": {}}, additionalProperties=False)]})
    False
    """
    if isinstance(schema, list):
        return all(map(is_strict, schema))
    if not isinstance(schema, dict):
        return True
    properties = schema.get("properties", {})
    if schema.get("type") == "object":
        is_closed = schema.get("additionalProperties") is False
        if not is_closed or {*properties} != {*schema.get("required", ())}:
            return False
    nested = [value for key, value in schema.items() if key not in ("properties", *_VALUE_KEYWORDS)]
    return all(map(is_strict, (*properties.values(), *nested)))


def _to_subset(schema: Any, has_const: bool) -> Any:
    """Return a schema without unsupported keywords, and with a type beside each constant."""
    if isinstance(schema, list):
        return [_to_subset(item, has_const) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    subset = {
        key: {name: _to_subset(inner, has_const) for name, inner in value.items()}
        if key == "properties"
        else value
        if key in _VALUE_KEYWORDS
        else _to_subset(value, has_const)
        for key, value in schema.items()
        if key not in _UNSUPPORTED
    }
    if "const" in subset and "type" not in subset and (kind := _TYPES.get(type(subset["const"]))):
        subset = {"type": kind, **subset}
    if "const" in subset and not has_const:
        subset["enum"] = [subset.pop("const")]
    if limits := [f"{key} {schema[key]}" for key in _UNSUPPORTED if key in schema]:
        subset["description"] = f"{subset.get('description') or ''} ({', '.join(limits)})".strip()
    return subset
