"""JSON Schemas that strangers wrote: whether one can be used, and how a value violates it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from lemming.kernel.base.json_schema.bounded import Steps, UnusableSchema, errors_of, errors_of_schema
from lemming.kernel.base.patterns import NoExpression

MOST_PROBLEMS = 5
MOST_PARTS = 10_000
Json = dict[str, Any]


class Violation(NamedTuple):
    """What is wrong with a value, and the JSON pointer to it."""

    pointer: str
    why: str


def misfits(schema: Json | bool, value: Any) -> list[str]:
    """Return in words why a value does not satisfy a sound schema (`flaw_of`), each with its place.

    >>> misfits({"type": "object", "required": ["verdict"]}, {})
    ["'verdict' is a required property"]
    """
    return [f"{'/'.join(path)}: {why}" if path else why for path, _, why in _errors(schema, value)]


def wrong_in(schema: Json | bool, value: Any) -> list[Violation]:
    """Return what is wrong with a value by a sound schema, each with the JSON pointer to it.

    >>> wrong_in({"type": "object", "required": ["verdict"]}, {})
    [Violation(pointer='/verdict', why='this key is required')]
    """
    found = []
    for path, missing, why in _errors(schema, value):
        pointer = "".join(f"/{part.replace('~', '~0').replace('/', '~1')}" for part in (*path, *missing))
        found.append(Violation(pointer, "this key is required" if missing else why))
    return found


def part_of(schema: Json | bool, reference: Any) -> Any:
    """Return the part of a schema that a `$ref` within it names; None when there is none.

    >>> part_of({"$defs": {"line": {"type": "string"}}}, "#/$defs/line")
    {'type': 'string'}
    """
    found: Any = schema if str(reference).startswith("#") else None
    for part in str(reference).split("/")[1:]:
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found


def _errors(schema: Json | bool, value: Any) -> list[tuple[list[str], list[str], str]]:
    """Return of each error the path to it, the key that is missing there, if that is it, and the words."""
    try:
        found = sorted(errors_of(schema, value), key=lambda error: list(map(str, error.path)))
    except UnusableSchema as error:
        return [([], [], f"the schema cannot be used: {error}")]
    return [
        (list(map(str, error.path)), _missing(error), error.message[:200]) for error in found[:MOST_PROBLEMS]
    ]


def _missing(error: Any) -> list[str]:
    if error.validator != "required":
        return []
    return [key for key in error.validator_value if error.message.startswith(f"{key!r} is")][:1]


def flaw_of(schema: Json | bool) -> tuple[str, str]:
    """Return what is wrong with a schema itself, and the JSON pointer to it; empty for a sound one."""
    try:
        error = next(errors_of_schema(schema), None)
    except UnusableSchema as unusable:
        return f"it cannot be used: {unusable}", ""
    if error is not None:
        return error.message[:200], "".join(f"/{part}" for part in error.path)
    for count, _ in enumerate(_parts(schema)):
        if count > MOST_PARTS:
            return f"it has more than {MOST_PARTS} parts, what it refers to included", ""
    try:
        next(errors_of(schema, {}), None)
    except UnusableSchema as unusable:  # it refers to itself without end, or to what is no address
        return f"it cannot be used: {unusable}", ""
    return _flaw_of_patterns(schema)


def _flaw_of_patterns(schema: Json | bool) -> tuple[str, str]:
    """Return which pattern of a schema that is one cannot be used, and the JSON pointer to it."""
    steps = Steps()
    for pointer, part in _parts(schema):
        own = [(part["pattern"], f"{pointer}/pattern")] if "pattern" in part else []
        for pattern, place in own + [
            (it, f"{pointer}/patternProperties") for it in part.get("patternProperties", ())
        ]:
            try:
                steps.ready(pattern)
            except (NoExpression, UnusableSchema) as error:
                return f"the pattern {pattern[:80]!r} cannot be used: {error}", place
    return "", ""


_OF_SCHEMAS = (
    "allOf",
    "anyOf",
    "oneOf",
    "prefixItems",
    "dependentSchemas",
    "patternProperties",
    "properties",
)
_ARE_SCHEMAS = (
    "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip


WORDS = frozenset({
    *_OF_SCHEMAS, *_ARE_SCHEMAS, "$anchor", "$comment", "$defs", "$dynamicAnchor", "$dynamicRef", "$id",
    "$ref", "$schema", "$vocabulary", "const", "contentEncoding", "contentMediaType", "contentSchema",
    "default", "definitions", "dependentRequired", "deprecated", "description", "enum", "examples",
    "exclusiveMaximum", "exclusiveMinimum", "format", "maxContains", "maxItems",
    "maxLength", "maxProperties", "maximum",
    "minContains", "minItems", "minLength", "minProperties", "minimum", "multipleOf", "pattern", "readOnly",
    "required", "title", "type", "uniqueItems", "writeOnly",
})  # fmt: skip
"""The keywords of JSON Schema, draft 2020-12. Any other is allowed in one, and checks nothing."""


def other_words(schema: Json | bool) -> Iterator[tuple[str, str]]:
    """Yield each keyword in a sound schema that JSON Schema does not have, and the pointer to its object."""
    for pointer, part in _parts(schema):
        yield from ((pointer, key) for key in part if key not in WORDS)


def _parts(whole: Json | bool) -> Iterator[tuple[str, Json]]:
    """Yield the objects of a schema and of what it refers to, as often as it does, with JSON pointers."""
    left: list[tuple[str, Any, tuple[str, ...]]] = [("", whole, ())]
    while left:
        pointer, schema, inside = left.pop()
        if not isinstance(schema, dict):
            continue
        yield pointer, schema
        inner = [(f"{pointer}/{word}", schema[word], inside) for word in _ARE_SCHEMAS if word in schema]
        for word in _OF_SCHEMAS:
            several = schema.get(word)
            named = several.items() if isinstance(several, dict) else enumerate(several or ())
            inner += [(f"{pointer}/{word}/{key}", part, inside) for key, part in named]
        reference = schema.get("$ref")
        # a part within itself is looked at once, else this has no end
        if isinstance(reference, str) and reference not in inside:
            inner.append((pointer, part_of(whole, reference), (*inside, reference)))
        left += reversed(inner)
