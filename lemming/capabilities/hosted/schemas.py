"""JSON Schemas in the subset that hosted servers take, and replies back in the form that was asked for. Pure.

Source: OpenAI's guide to structured outputs, "Supported schemas": the root is an object and no `anyOf`, each
object closes itself and requires all its properties, and of texts only `pattern` and `format` are listed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lemming.kernel.base.jsontext import JsonProblem, parse, to_line

WRAPPER = "action"
"""The one property of the object around a schema whose root is none: one of several actions, or a list."""

_WRAPPED = re.compile(r'\s*\{\s*"action"\s*:\s*[{\[]')
_NOT_LISTED = ("minLength", "maxLength")
_VALUES = ("enum", "const", "default", "required")
"""Keywords that hold values and no schemas."""
_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number"}


def to_object_root(schema: Mapping[str, Any], *, has_const: bool = True) -> dict[str, Any]:
    """Return a schema with an object at its root, in the subset; another root is wrapped in one.

    Without `has_const` a constant is an enumeration of one value: Gemini's documented list has no `const`,
    and passes over what it does not have.

    >>> to_object_root({"anyOf": [{"type": "null"}]})["properties"]
    {'action': {'anyOf': [{'type': 'null'}]}}
    """
    subset: dict[str, Any] = _to_subset(schema, has_const)
    if subset.get("type") == "object" and "anyOf" not in subset:
        return subset
    return {
        "type": "object",
        "properties": {WRAPPER: subset},
        "required": [WRAPPER],
        "additionalProperties": False,
    }


def unwrap_reply(text: str) -> str:
    """Return a reply without the object that `to_object_root` puts around one action, or a list of them.

    The text alone decides, so that a batch and a stream are read alike. A reply of another form stays as it
    is: the turn says what is wrong with it.

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
    are_actions = all(isinstance(one, dict) and ("do" in one or "name" in one) for one in actions)
    return to_line(inner) if are_actions else text


def is_strict(schema: object) -> bool:
    """Return True if each object of a schema closes itself and requires all of its properties.

    >>> is_strict({"anyOf": [{"type": "object", "properties": {"a": {}}, "additionalProperties": False}]})
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
    further = [value for key, value in schema.items() if key not in ("properties", *_VALUES)]
    return all(map(is_strict, (*properties.values(), *further)))


def _to_subset(schema: Any, has_const: bool) -> Any:
    """Return a schema without keywords that are not listed, and with a type beside each constant."""
    if isinstance(schema, list):
        return [_to_subset(item, has_const) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    subset = {
        key: {name: _to_subset(inner, has_const) for name, inner in value.items()}
        if key == "properties"
        else value
        if key in _VALUES
        else _to_subset(value, has_const)
        for key, value in schema.items()
        if key not in _NOT_LISTED
    }
    if "const" in subset and "type" not in subset and (kind := _TYPES.get(type(subset["const"]))):
        subset = {"type": kind, **subset}
    if "const" in subset and not has_const:
        subset["enum"] = [subset.pop("const")]
    if limits := [f"{key} {schema[key]}" for key in _NOT_LISTED if key in schema]:
        subset["description"] = f"{subset.get('description') or ''} ({', '.join(limits)})".strip()
    return subset
