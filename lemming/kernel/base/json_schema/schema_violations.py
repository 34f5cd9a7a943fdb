"""Checks of untrusted JSON Schemas, and violations of a schema by a value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lemming.kernel.base.json_schema.bounded_validator import (
    StepBudget,
    UnusableSchema,
    iter_errors,
    iter_schema_errors,
)
from lemming.kernel.base.name_patterns import InvalidPattern

MAX_PROBLEMS = 5
MAX_PARTS = 10_000
Json = dict[str, Any]


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
        error = next(iter_schema_errors(schema), None)
    except UnusableSchema as unusable:
        return f"it cannot be used: {unusable}", ""
    if error is not None:
        return error.message[:200], "".join(f"/{part}" for part in error.path)
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


_SCHEMA_COLLECTIONS = ("allOf", "anyOf", "oneOf", "prefixItems", "dependentSchemas", "patternProperties", "properties")
_SCHEMA_KEYWORDS = (
    "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip


KEYWORDS = frozenset({
    *_SCHEMA_COLLECTIONS, *_SCHEMA_KEYWORDS, "$anchor", "$comment", "$defs", "$dynamicAnchor", "$dynamicRef",
    "$id",
    "$ref", "$schema", "$vocabulary", "const", "contentEncoding", "contentMediaType", "contentSchema",
    "default", "definitions", "dependentRequired", "deprecated", "description", "enum", "examples",
    "exclusiveMaximum", "exclusiveMinimum", "format", "maxContains", "maxItems",
    "maxLength", "maxProperties", "maximum",
    "minContains", "minItems", "minLength", "minProperties", "minimum", "multipleOf", "pattern", "readOnly",
    "required", "title", "type", "uniqueItems", "writeOnly",
})  # fmt: skip
"""The keywords of JSON Schema, draft 2020-12. Any other is allowed in one, and checks nothing."""


def find_unknown_keywords(schema: Json | bool) -> Iterator[tuple[str, str]]:
    """Yield each keyword of a valid schema unknown to JSON Schema, with the pointer to the object."""
    for pointer, part in _iter_subschemas(schema):
        yield from ((pointer, key) for key in part if key not in KEYWORDS)


def _iter_subschemas(root: Json | bool) -> Iterator[tuple[str, Json]]:
    """Yield the objects of a schema and the references with JSON pointers, as often as they are referenced."""
    pending: list[tuple[str, Any, tuple[str, ...]]] = [("", root, ())]
    while pending:
        pointer, schema, open_references = pending.pop()
        if not isinstance(schema, dict):
            continue
        yield pointer, schema
        inner = [
            (f"{pointer}/{keyword}", schema[keyword], open_references)
            for keyword in _SCHEMA_KEYWORDS
            if keyword in schema
        ]
        for keyword in _SCHEMA_COLLECTIONS:
            subschemas = schema.get(keyword)
            named_parts = subschemas.items() if isinstance(subschemas, dict) else enumerate(subschemas or ())
            inner += [(f"{pointer}/{keyword}/{key}", part, open_references) for key, part in named_parts]
        reference = schema.get("$ref")
        # a recursive part is visited once, or the walk never ends
        if isinstance(reference, str) and reference not in open_references:
            inner.append((pointer, resolve_ref(root, reference), (*open_references, reference)))
        pending += reversed(inner)
