"""Types of recorded values: annotated types and their JSON Schemas. Pure.

One type serves mypy and the validation of untrusted files: `compile_check` compiles the check for
`type_schema(type)`. A dict in an `Annotated` adds keywords to the schema of the type; a type (a TypedDict) in
an `Annotated` replaces it. Only the JSON Schema keywords (draft 2020-12) used by the tables of formats are
supported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, get_args, get_origin, get_type_hints, is_typeddict

from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.files.fast_decoder import MAX_AMOUNT

Json = dict[str, Any]
Schema = dict[str, Any]

# No part of a path may be "..", and no character in it may be a control character.
PATH_PATTERN = r"^(?!([^\x00-\x1f]*/)?\.\.(/|$))[^\x00-\x1f\x7f]+$"
AMOUNT_LIMITS = {"minimum": 0, "maximum": MAX_AMOUNT}

AgentName = Annotated[str, {"pattern": "^[a-z0-9][a-z0-9_-]{0,62}$"}]
Count = Annotated[int, {"minimum": 0, "maximum": int(MAX_AMOUNT)}]
Amount = Annotated[float, AMOUNT_LIMITS]
Price = Annotated[float | None, AMOUNT_LIMITS]
Timestamp = Annotated[str, {"format": "date-time"}]
FilePath = Annotated[str, {"pattern": PATH_PATTERN, "maxLength": 4096}]
EntryFile = Annotated[str, {"pattern": "^agents/[a-z0-9][a-z0-9_-]{0,62}/outbox/[0-9]{8,12}_[A-Za-z0-9]{1,64}[.]json$"}]
Digest = Annotated[str, {"pattern": "^[0-9a-f]{64}$"}]

_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def object_schema(required: Schema, optional: Schema | None = None) -> Schema:
    """Return the schema of an object from the schemas of the keys; undeclared keys are allowed."""
    return {"type": "object", "properties": {**required, **(optional or {})}, "required": [*required]}


def type_schema(kind: Any) -> Schema:
    """Return the schema of a type.

    >>> type_schema(dict[str, int | None])
    {'type': 'object', 'additionalProperties': {'type': ['integer', 'null']}}
    """
    if kind is Any:
        return {}
    if isinstance(kind, type) and kind in _JSON_TYPES:
        return {"type": _JSON_TYPES[kind]}
    if is_typeddict(kind):
        hints = get_type_hints(kind, include_extras=True)
        optional = {key: get_args(hint)[0] for key, hint in hints.items() if get_origin(hint) is NotRequired}
        required = {key: type_schema(hint) for key, hint in hints.items() if key not in optional}
        return object_schema(required, {key: type_schema(hint) for key, hint in optional.items()})
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        schema = type_schema(args[0])
        for annotation in args[1:]:
            schema |= annotation if isinstance(annotation, dict) else type_schema(annotation)
        return schema
    if origin is Literal:
        return {"const": args[0]} if len(args) == 1 else {"enum": [*args]}
    if origin is list:
        return {"type": "array", "items": type_schema(args[0])}
    if origin is dict:
        keys, values = type_schema(args[0]), type_schema(args[1])
        name_schema = {"propertyNames": keys} if "pattern" in keys else {}
        return {"type": "object", **name_schema, **({"additionalProperties": values} if values else {})}
    (inner_type,) = (arg for arg in args if arg is not type(None))  # of a union: with None only
    schema = type_schema(inner_type)
    return {**schema, "type": [schema["type"], "null"]}


MAX_REMEMBERED_TEXTS = 100_000  # the same number as of cached schema types

Check = Callable[[Any], "SchemaViolation | None"]


class SchemaViolation(NamedTuple):
    """A violation of a schema: the reason, and the JSON pointer to the value."""

    reason: str
    pointer: str = ""

    def __str__(self) -> str:
        return f"{self.pointer}: {self.reason}" if self.pointer else self.reason


def compile_check(schema: Schema) -> Check:
    """Return a function finding the first violation in a value, for the supported part of JSON Schema."""
    checks = list(_iter_checks(schema))
    if len(checks) == 1:
        return checks[0]

    def check(value: Any) -> SchemaViolation | None:
        for single_check in checks:
            if violation := single_check(value):
                return violation
        return None

    return check


def _iter_checks(schema: Schema) -> Iterator[Check]:
    if "type" in schema:
        yield _type_check(schema["type"])
    if "const" in schema or "enum" in schema:
        allowed = schema.get("enum", [schema.get("const")])
        yield lambda value: None if isinstance(value, str) and value in allowed else _reject(value)
    if "anyOf" in schema:
        branches = [compile_check(branch) for branch in schema["anyOf"]]
        yield lambda value: None if any(not check(value) for check in branches) else _reject(value)
    if "minimum" in schema or "maximum" in schema:
        minimum, maximum = schema.get("minimum", float("-inf")), schema.get("maximum", float("inf"))
        yield lambda value: None if value is None or minimum <= value <= maximum else _reject(value)
    if "pattern" in schema:
        match_pattern, max_length = re.compile(schema["pattern"]).fullmatch, schema.get("maxLength", 1 << 30)
        yield lambda value: None if len(value) <= max_length and match_pattern(value) else _reject(value)
    if "format" in schema:
        yield _check_timestamp
    if "items" in schema:
        item_check = compile_check(schema["items"])
        if schema["items"].get("type") == "string":  # each text is checked once: plans repeat the same agents
            check_text = lru_cache(MAX_REMEMBERED_TEXTS)(item_check)
            yield _items_check(lambda value: check_text(value) if type(value) is str else item_check(value))
        else:
            yield _items_check(item_check)
    if schema.get("uniqueItems"):
        twice = SchemaViolation("expected different items, got one twice")
        yield lambda value: None if len({*value}) == len(value) else twice
    if "properties" in schema:
        yield _properties_check(schema)
    if "propertyNames" in schema:
        yield _items_check(compile_check(schema["propertyNames"]))  # its keys
    if "additionalProperties" in schema:
        yield _items_check(compile_check(schema["additionalProperties"]), dict.items)


def _type_check(name: str | list[str]) -> Check:
    names = [name] if isinstance(name, str) else name
    types = frozenset(kind for type_name in names for kind in _TYPES[type_name])
    expected = " or ".join(map(_TYPE_LABELS.__getitem__, names))
    return lambda value: None if type(value) in types else _wrong_type(expected, value)


_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "boolean": (bool,), "integer": (int,), "number": (int, float), "null": (type(None),),
    "object": (dict,), "array": (list,),
}  # fmt: skip
_TYPE_LABELS = {
    "string": "text", "boolean": "true or false", "integer": "a whole number", "number": "a number",
    "null": "null", "object": "an object", "array": "a list",
}  # fmt: skip


def _items_check(check: Check, iter_items: Callable[[Any], Iterable[tuple[Any, Any]]] = enumerate) -> Check:
    def check_items(value: Any) -> SchemaViolation | None:
        for key, item in iter_items(value):
            if violation := check(item):
                return _prefix_pointer(str(key)[:80], violation)
        return None

    return check_items


def _properties_check(schema: Schema) -> Check:
    checks = {key: compile_check(inner) for key, inner in schema["properties"].items()}
    required = schema["required"]

    def check_properties(value: Any) -> SchemaViolation | None:
        if value is None:  # where null is allowed too
            return None
        for key in required:
            if key not in value:
                return SchemaViolation("this key is required", f"/{key}")
        for key, check in checks.items():
            if key in value and (violation := check(value[key])):
                return _prefix_pointer(key, violation)
        return None

    return check_properties


def _prefix_pointer(key: str, violation: SchemaViolation) -> SchemaViolation:
    return SchemaViolation(violation.reason, f"/{key}{violation.pointer}")


def _check_timestamp(value: Any) -> SchemaViolation | None:
    try:
        parse_timestamp(value)
    except ValueError:
        return _wrong_type("a time", value)
    return None


def _wrong_type(expected: str, value: Any) -> SchemaViolation:
    return SchemaViolation(f"expected {expected}, got {format_value(value)}")


def _reject(value: Any) -> SchemaViolation:
    return SchemaViolation(f"{format_value(value)} is not an allowed value")


def format_value(value: Any) -> str:
    """Return a value formatted for an error message: short, and without control characters."""
    if isinstance(value, str):
        printable = "".join(letter if letter.isprintable() else "?" for letter in value[:60])
        return f'"{printable}"'
    names = {dict: "an object", list: "a list", bool: "true or false", type(None): "null"}
    return names.get(type(value)) or str(value)[:60]
