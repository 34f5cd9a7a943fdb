"""Checks of untrusted JSON Schemas, violations of a schema by a value, and short schemas for prompts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lemming.kernel.base.json_schema.bounded_validator import StepBudget, UnusableSchema, iter_errors, meta_schema
from lemming.kernel.base.name_patterns import InvalidPattern

MAX_PROBLEMS = 5
MAX_PARTS = 10_000
Json = dict[str, Any]

_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAPS = ("dependentSchemas", "patternProperties", "properties")
"""Keywords with names as keys and schemas as values, and those of definitions, which only a reference applies."""
_DEFINITIONS = ("$defs", "definitions")
_INNER = (
    "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_SILENT = frozenset({"title", "$schema", "$id", "$comment"})
"""Annotations that repeat a name, or speak to programs."""
_NULL = {"type": "null"}


def describe_violations(schema: Json | bool, value: Any) -> list[str]:
    """Return descriptions of a value's violations of a valid schema (`find_schema_flaw`), with their paths.

    >>> describe_violations(dict(type="object", required=["verdict"]), {})
    ["'verdict' is a required property"]
    """
    return [f"{'/'.join(path)}: {reason}" if path else reason for path, _, reason in list_errors(schema, value)]


def resolve_ref(schema: Mapping[str, Any] | bool, reference: Any) -> Any:
    """Return the part of a schema a local `$ref` points to, or None.

    >>> resolve_ref({"$defs": {"line": {"type": "string"}}}, "#/$defs/line")
    {'type': 'string'}
    """
    target: Any = schema if str(reference).startswith("#") else None
    for part in str(reference).split("/")[1:]:
        target = target.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(target, dict) else None
    return target


def list_errors(schema: Json | bool, value: Any) -> list[tuple[list[str], list[str], str]]:
    """Return each error as the path, the missing key if a key is missing, and the message."""
    try:
        errors = sorted(iter_errors(schema, value), key=lambda error: list(map(str, error.path)))
    except UnusableSchema as error:
        return [([], [], f"the schema cannot be used: {error}")]
    return [(list(map(str, error.path)), _missing(error), error.message[:200]) for error in errors[:MAX_PROBLEMS]]


def _missing(error: Any) -> list[str]:
    if error.validator != "required":
        return []
    return [key for key in error.validator_value if error.message.startswith(f"{key!r} is")][:1]


def find_schema_flaw(schema: Json | bool) -> tuple[str, str]:
    """Return the error of an invalid schema with its JSON pointer; two empty strings for a valid schema."""
    try:
        error = next(iter_errors(meta_schema(), schema), None)
    except UnusableSchema as unusable:
        return f"it cannot be used: {unusable}", ""
    if error is not None:
        is_type = error.validator == "anyOf" and list(error.path)[-1:] == ["type"]
        message = f"{error.instance!r:.60} must be one of {', '.join(_TYPES)}" if is_type else error.message[:200]
        return message, "".join(f"/{part}" for part in error.path)
    for count, _ in enumerate(_iter_subschemas(schema)):
        if count > MAX_PARTS:
            return f"it has more than {MAX_PARTS} parts, what it refers to included", ""
    try:
        next(iter_errors(schema, {}), None)
    except UnusableSchema as unusable:  # an endless reference to itself, or an invalid address
        return f"it cannot be used: {unusable}", ""
    return _find_bad_pattern(schema)


def _find_bad_pattern(schema: Json | bool) -> tuple[str, str]:
    """Return the first unusable pattern of a valid schema with its JSON pointer."""
    steps = StepBudget()
    for pointer, part in _iter_subschemas(schema):
        own_pattern = [(part["pattern"], f"{pointer}/pattern")] if "pattern" in part else []
        for pattern, location in own_pattern + [
            (pattern_key, f"{pointer}/patternProperties") for pattern_key in part.get("patternProperties", ())
        ]:
            try:
                steps.compile_pattern(pattern)
            except (InvalidPattern, UnusableSchema) as error:
                return f"the pattern {pattern[:80]!r} cannot be used: {error}", location
    return "", ""


def schema_keywords() -> list[str]:
    """Return the keywords of JSON Schema, draft 2020-12, sorted. Any other is allowed in one, and checks nothing."""
    return sorted(meta_schema()["properties"])


def find_unknown_keywords(schema: Json | bool) -> Iterator[tuple[str, str]]:
    """Yield each keyword of a valid schema unknown to JSON Schema, with the pointer to the object."""
    for pointer, part in _iter_subschemas(schema):
        yield from ((pointer, key) for key in part if key not in schema_keywords())


def _iter_subschemas(root: Json | bool) -> Iterator[tuple[str, Json]]:
    """Yield the objects of a schema and the references with JSON pointers, as often as they are referenced."""
    pending: list[tuple[str, Any, tuple[str, ...]]] = [("", root, ())]
    while pending:
        pointer, schema, open_references = pending.pop()
        if not isinstance(schema, dict):
            continue
        yield pointer, schema
        inner = [(f"{pointer}/{keyword}", schema[keyword], open_references) for keyword in _INNER if keyword in schema]
        for keyword in (*_LISTS, *_MAPS):
            subschemas = schema.get(keyword)
            named_parts = subschemas.items() if isinstance(subschemas, dict) else enumerate(subschemas or ())
            inner += [(f"{pointer}/{keyword}/{key}", part, open_references) for key, part in named_parts]
        reference = schema.get("$ref")
        # a recursive part is visited once, or the walk never ends
        if isinstance(reference, str) and reference not in open_references:
            inner.append((pointer, resolve_ref(root, reference), (*open_references, reference)))
        pending += reversed(inner)


def shorten_schema(schema: Any) -> Any:
    """Return a schema for prompts: without titles, dialects, empty texts and lists, and rules about unknown keys.

    An optional property with null as the default is shown without the null. Calls are still validated against the
    long schema. Every value valid under the short schema is valid under the long schema, except for objects with
    undeclared keys, which validation rejects with a message.

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
        elif key in (*_MAPS, *_DEFINITIONS) and isinstance(value, Mapping):
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
    return (key == "required" and value == []) or (
        key in (*_MAPS, *_DEFINITIONS) and value == {} and key != "properties"
    )


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
