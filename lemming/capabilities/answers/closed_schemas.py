"""The schema of a payload that a person or an agent wrote, as backends take it: a closed one. Pure."""

from __future__ import annotations

from typing import Any

from lemming.kernel.base.json_schema.violations import part_of
from lemming.kernel.files.fields import Json
from lemming.kernel.turn.reply_schemas import closed

DEEPEST = 12
MOST_PARTS = 500
MOST_LISTED = 20
NOT_CLOSABLE = (
    "$dynamicRef", "allOf", "contains", "dependentRequired", "dependentSchemas", "else", "if", "not", "oneOf",
    "patternProperties", "prefixItems", "propertyNames", "then", "unevaluatedProperties",
)  # fmt: skip
"""Keywords of JSON Schema that no backend is given: a schema with one of them is held to afterwards only."""
_LIMITS = (
    "exclusiveMaximum", "exclusiveMinimum", "format", "maxItems", "maximum", "minItems", "minimum",
    "multipleOf", "pattern", "uniqueItems",
)  # fmt: skip
_LENGTHS = ("minLength", "maxLength")
"""Limits that stay as they are: a provider whose server does not take them puts them into words."""


class NotClosable(ValueError):
    """A schema that no closed one stands for; the message says why."""


def why_not_closable(schema: Json) -> str:
    """Return why no closed schema stands for one of a payload; empty when one does."""
    try:
        return "" if "properties" in closed_schema(schema) else "it is not that of an object"
    except NotClosable as error:
        return str(error)


def closed_schema(schema: Json) -> Json:
    """Return the closed schema that stands for another; raise `NotClosable`.

    Limits of a value become words of its description: they are held to afterwards.

    >>> closed_schema({"properties": {"price": {"type": "number", "minimum": 0}}, "required": ["price"]})
    ... # doctest: +NORMALIZE_WHITESPACE
    {'type': 'object', 'properties': {'price': {'type': 'number', 'description': 'minimum: 0'}},
     'required': ['price'], 'additionalProperties': False}
    """
    return _Closing(schema).close(schema, "", 0)


class _Closing:
    def __init__(self, whole: Json) -> None:
        self._whole, self._left = whole, MOST_PARTS

    def close(self, schema: Any, place: str, depth: int) -> Json:
        self._left -= 1
        if depth > DEEPEST or self._left < 0:
            raise NotClosable(f"{place or '/'}: it goes too deep, or refers to itself")
        if not isinstance(schema, dict):
            raise NotClosable(f"{place or '/'}: any value will do there")
        if "$ref" in schema:
            return self.close(self._referred(schema["$ref"], place), place, depth + 1)
        if unknown := next((key for key in NOT_CLOSABLE if key in schema), ""):
            raise NotClosable(f"{place}/{unknown} cannot be said there")
        return {**self._value(schema, place, depth), **_described(schema)}

    def _value(self, schema: Json, place: str, depth: int) -> Json:
        kind = schema.get("type", "object" if "properties" in schema else None)
        if "anyOf" in schema:
            branches = [
                self.close(it, f"{place}/anyOf/{at}", depth + 1) for at, it in enumerate(schema["anyOf"])
            ]
            return {"anyOf": branches}
        if "enum" in schema or "const" in schema:
            return _listed(schema.get("enum", [schema.get("const")]), place)
        if isinstance(kind, list):
            return {"anyOf": [self._value({**schema, "type": one}, place, depth + 1) for one in kind]}
        if kind == "object":
            return self._object(schema, place, depth)
        if kind == "array":
            return {"type": "array", "items": self.close(schema.get("items"), f"{place}/items", depth + 1)}
        if kind == "integer" and (few := _few_numbers(schema)):
            return {"type": "integer", "enum": few}
        if kind in ("string", "integer", "number", "boolean", "null"):
            return {"type": kind}
        raise NotClosable(f"{place or '/'}: it has no type")

    def _object(self, schema: Json, place: str, depth: int) -> Json:
        properties, required = schema.get("properties"), schema.get("required", [])
        if not properties or isinstance(schema.get("additionalProperties"), dict):
            raise NotClosable(f"{place or '/'}: its keys are not laid down")
        inner = {
            key: self.close(it, f"{place}/properties/{key}", depth + 1) for key, it in properties.items()
        }
        return closed(
            {key: it if key in required else {"anyOf": [it, {"type": "null"}]} for key, it in inner.items()}
        )

    def _referred(self, pointer: Any, place: str) -> Any:
        found = part_of(self._whole, pointer)
        if found is None:
            raise NotClosable(f"{place}/$ref: {str(pointer)[:80]} is not in it")
        return found


def _listed(values: list[Any], place: str) -> Json:
    names = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
    kinds = {names.get(type(value), "") for value in values}
    if len(kinds) != 1 or "" in kinds:
        raise NotClosable(f"{place}/enum: its values are not of one simple type")
    return {"type": kinds.pop(), "enum": values}


def _few_numbers(schema: Json) -> list[int]:
    """Return the whole numbers between two limits where they are few: every backend can keep to a list."""
    low, high = schema.get("minimum"), schema.get("maximum")
    if not isinstance(low, int) or not isinstance(high, int) or not 0 <= high - low < MOST_LISTED:
        return []
    return [*range(low, high + 1)]


def _described(schema: Json) -> Json:
    about = schema.get("description")
    limits = [f"{key}: {schema[key]}" for key in _LIMITS if key in schema]
    words = "; ".join([*([about] if isinstance(about, str) else []), *limits])
    kept = {key: schema[key] for key in _LENGTHS if key in schema}
    return {**({"description": words} if words else {}), **kept}
