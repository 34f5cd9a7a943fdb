"""An answer held against the JSON Schema that it was to satisfy, and what is wrong with such a schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

MOST_PROBLEMS = 5
MOST_PARTS = 10_000
Json = dict[str, Any]


class Wrong(NamedTuple):
    """What is wrong with a value, and the JSON pointer to it."""

    pointer: str
    why: str


def misfits(schema: Json, value: Any) -> list[str]:
    """Return in words why a value does not satisfy a sound schema (`flaw_of`), each with its place.

    >>> misfits({"type": "object", "required": ["verdict"]}, {})
    ["'verdict' is a required property"]
    """
    return [f"{'/'.join(path)}: {why}" if path else why for path, _, why in _errors(schema, value)]


def wrong_in(schema: Json, value: Any) -> list[Wrong]:
    """Return what is wrong with a value by a sound schema, each with the JSON pointer to it.

    >>> wrong_in({"type": "object", "required": ["verdict"]}, {})
    [Wrong(pointer='/verdict', why='this key is required')]
    """
    found = []
    for path, missing, why in _errors(schema, value):
        pointer = "".join(f"/{part.replace('~', '~0').replace('/', '~1')}" for part in (*path, *missing))
        found.append(Wrong(pointer, "this key is required" if missing else why))
    return found


def part_of(schema: Json, reference: Any) -> Any:
    """Return the part of a schema that a `$ref` within it names; None when there is none.

    >>> part_of({"$defs": {"line": {"type": "string"}}}, "#/$defs/line")
    {'type': 'string'}
    """
    found: Any = schema if str(reference).startswith("#") else None
    for part in str(reference).split("/")[1:]:
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found


def _errors(schema: Json, value: Any) -> list[tuple[list[str], list[str], str]]:
    """Return of each error the path to it, the key that is missing there, if that is it, and the words."""
    from jsonschema.exceptions import SchemaError
    from referencing.exceptions import Unresolvable

    try:
        found = sorted(_validator(schema).iter_errors(value), key=lambda error: list(map(str, error.path)))
    except (SchemaError, Unresolvable, RecursionError, ValueError) as error:
        return [([], [], f"the schema cannot be used: {str(error)[:200]}")]
    return [
        (list(map(str, error.path)), _missing(error), error.message[:200]) for error in found[:MOST_PROBLEMS]
    ]


def _missing(error: Any) -> list[str]:
    if error.validator != "required":
        return []
    return [key for key in error.validator_value if error.message.startswith(f"{key!r} is")][:1]


def flaw_of(schema: Json) -> tuple[str, str]:
    """Return what is wrong with a schema itself, and the JSON pointer to it; empty for a sound one."""
    from jsonschema import Draft202012Validator

    error = next(Draft202012Validator(Draft202012Validator.META_SCHEMA).iter_errors(schema), None)
    if error is None:
        return _flaw_of_use(schema)
    return error.message[:200], "".join(f"/{part}" for part in error.path)


def _validator(schema: Json) -> Any:
    """Return the validator of a schema; what it refers to elsewhere is not fetched."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend
    from referencing import Registry

    kind: Any = extend(Draft202012Validator, {"pattern": _matches})  # type: ignore[no-untyped-call]
    return kind(schema, registry=Registry())


def _matches(_: Any, pattern: str, value: Any, __: Json) -> Iterator[Any]:
    """Hold a text against a pattern as jsonschema does, in a time that no pattern can draw out."""
    from jsonschema import ValidationError
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    if not isinstance(value, str):
        return
    try:
        found = SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
        if not found.isinstance_python(value):
            yield ValidationError(f"{value[:80]!r} does not match {pattern[:80]!r}")
    except SchemaError:
        yield ValidationError(f"the pattern {pattern[:80]!r} cannot be used")


def _flaw_of_use(schema: Json) -> tuple[str, str]:
    """Return what keeps a schema that is one from being used, and the JSON pointer to it."""
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    for count, (pointer, part) in enumerate(_parts(schema, schema, "", ())):
        if count > MOST_PARTS:
            return f"it has more than {MOST_PARTS} parts, what it refers to included", ""
        if isinstance(pattern := part.get("pattern"), str):
            try:
                SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
            except SchemaError:
                return f"the pattern {pattern[:80]!r} cannot be used", f"{pointer}/pattern"
    return "", ""


def _parts(schema: Any, whole: Json, pointer: str, inside: tuple[str, ...]) -> Iterator[tuple[str, Json]]:
    """Yield the objects of a schema and of what it refers to, as often as it does, with JSON pointers."""
    if isinstance(schema, dict):
        yield pointer, schema
        reference = str(schema.get("$ref", ""))
        if reference and reference not in inside:
            yield from _parts(part_of(whole, reference), whole, pointer, (*inside, reference))
    inner = schema.items() if isinstance(schema, dict) else ()
    for key, part in enumerate(schema) if isinstance(schema, list) else inner:
        if key != "$defs":
            yield from _parts(part, whole, f"{pointer}/{key}", inside)
