"""Conversion of a payload schema, written by a person or an agent, to a closed schema for backends. Pure."""

from __future__ import annotations

from typing import Any

from lemming.kernel.base.json_schema.schema_violations import resolve_ref
from lemming.kernel.files.field_types import Json
from lemming.kernel.turn.reply_schemas import closed_object

MAX_DEPTH = 12
MAX_PARTS = 500
MAX_ENUM_VALUES = 20
UNSUPPORTED_KEYWORDS = (
    "$dynamicRef", "allOf", "contains", "dependentRequired", "dependentSchemas", "else", "if", "not", "oneOf",
    "patternProperties", "prefixItems", "propertyNames", "then", "unevaluatedProperties",
)  # fmt: skip
"""Keywords of JSON Schema that no backend is given: a schema with one of them is held to afterwards only."""
_LIMITS = (
    "exclusiveMaximum", "exclusiveMinimum", "format", "maxItems", "maximum", "minItems", "minimum",
    "multipleOf", "pattern", "uniqueItems",
)  # fmt: skip
_LENGTHS = ("minLength", "maxLength")
"""Limits that stay unchanged; a provider without support puts them into words."""


class NotClosable(ValueError):
    """The schema has no closed equivalent; the message states the reason."""


def closing_blocker(schema: Json) -> str:
    """Return the reason a payload schema has no closed equivalent, or an empty string."""
    try:
        return "" if "properties" in close_payload_schema(schema) else "it is not that of an object"
    except NotClosable as error:
        return str(error)


def close_payload_schema(schema: Json) -> Json:
    """Return the closed equivalent of a schema. Raises `NotClosable`.

    Limits of a value become text in the description and are checked afterwards.

    >>> close_payload_schema({'properties': {'price': {'type': 'number', 'minimum': 0}}, 'required': ['price']})
    ... # doctest: +NORMALIZE_WHITESPACE
    {'type': 'object', 'properties': {'price': {'type': 'number', 'description': 'minimum: 0'}},
     'required': ['price'], 'additionalProperties': False}
    """
    return _SchemaCloser(schema).close_schema(schema, "", 0)


class _SchemaCloser:
    def __init__(self, root: Json) -> None:
        self._root, self._remaining = root, MAX_PARTS

    def close_schema(self, schema: Any, pointer: str, depth: int) -> Json:
        self._remaining -= 1
        if depth > MAX_DEPTH or self._remaining < 0:
            raise NotClosable(f"{pointer or '/'} is nested too deep, or refers to itself")
        if not isinstance(schema, dict):
            raise NotClosable(f"{pointer or '/'} allows any value")
        if "$ref" in schema:
            return self.close_schema(self._resolve_ref(schema["$ref"], pointer), pointer, depth + 1)
        if unknown := next((key for key in UNSUPPORTED_KEYWORDS if key in schema), ""):
            raise NotClosable(f"{pointer}/{unknown} is not supported")
        return {**self._close_value(schema, pointer, depth), **_describe_limits(schema)}

    def _close_value(self, schema: Json, pointer: str, depth: int) -> Json:
        kind = schema.get("type", "object" if "properties" in schema else None)
        if "anyOf" in schema:
            branches = [
                self.close_schema(branch, f"{pointer}/anyOf/{index}", depth + 1)
                for index, branch in enumerate(schema["anyOf"])
            ]
            return {"anyOf": branches}
        if "enum" in schema or "const" in schema:
            return _close_enum(schema.get("enum", [schema.get("const")]), pointer)
        if isinstance(kind, list):
            return {"anyOf": [self._close_value({**schema, "type": name}, pointer, depth + 1) for name in kind]}
        if kind == "object":
            return self._close_object(schema, pointer, depth)
        if kind == "array":
            return {"type": "array", "items": self.close_schema(schema.get("items"), f"{pointer}/items", depth + 1)}
        if kind == "integer" and (values := _enumerate_integers(schema)):
            return {"type": "integer", "enum": values}
        if kind in ("string", "integer", "number", "boolean", "null"):
            return {"type": kind}
        raise NotClosable(f"{pointer or '/'} has no type")

    def _close_object(self, schema: Json, pointer: str, depth: int) -> Json:
        properties, required = schema.get("properties"), schema.get("required", [])
        if not properties or isinstance(schema.get("additionalProperties"), dict):
            raise NotClosable(f"{pointer or '/'} does not define its keys")
        inner = {
            key: self.close_schema(part, f"{pointer}/properties/{key}", depth + 1) for key, part in properties.items()
        }
        return closed_object(
            {key: part if key in required else {"anyOf": [part, {"type": "null"}]} for key, part in inner.items()}
        )

    def _resolve_ref(self, pointer: Any, location: str) -> Any:
        target = resolve_ref(self._root, pointer)
        if target is None:
            raise NotClosable(f"{location}/$ref refers outside the schema: {str(pointer)[:80]}")
        return target


def _close_enum(values: list[Any], pointer: str) -> Json:
    names = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
    kinds = {names.get(type(value), "") for value in values}
    if len(kinds) != 1 or "" in kinds:
        raise NotClosable(f"{pointer}/enum must have values of one simple type")
    return {"type": kinds.pop(), "enum": values}


def _enumerate_integers(schema: Json) -> list[int]:
    """Return the integers between two limits if few: every backend supports an enumeration."""
    low, high = schema.get("minimum"), schema.get("maximum")
    if not isinstance(low, int) or not isinstance(high, int) or not 0 <= high - low < MAX_ENUM_VALUES:
        return []
    return [*range(low, high + 1)]


def _describe_limits(schema: Json) -> Json:
    about = schema.get("description")
    limits = [f"{key}: {schema[key]}" for key in _LIMITS if key in schema]
    description = "; ".join([*([about] if isinstance(about, str) else []), *limits])
    lengths = {key: schema[key] for key in _LENGTHS if key in schema}
    return {**({"description": description} if description else {}), **lengths}
