"""An answer held against the JSON Schema that it was to satisfy, and what is wrong with such a schema."""

from __future__ import annotations

from typing import Any

MOST_PROBLEMS = 5
Json = dict[str, Any]


def misfits(schema: Json, value: Any) -> list[str]:
    """Return in words why a value does not satisfy a sound schema (`flaw_of`), each with its place.

    >>> misfits({"type": "object", "required": ["verdict"]}, {})
    ["'verdict' is a required property"]
    """
    from jsonschema.exceptions import SchemaError
    from referencing.exceptions import Unresolvable

    try:
        found = sorted(_validator(schema).iter_errors(value), key=lambda error: list(map(str, error.path)))
    except (SchemaError, Unresolvable, RecursionError) as error:
        return [f"the schema cannot be used: {str(error)[:200]}"]
    return [_in_words(list(error.path), error.message) for error in found[:MOST_PROBLEMS]]


def flaw_of(schema: Json) -> tuple[str, str]:
    """Return what is wrong with a schema itself, and the JSON pointer to it; empty for a sound one."""
    from jsonschema import Draft202012Validator

    error = next(Draft202012Validator(Draft202012Validator.META_SCHEMA).iter_errors(schema), None)
    if error is None:
        return "", ""
    return error.message[:200], "".join(f"/{part}" for part in error.path)


def _validator(schema: Json) -> Any:
    """Return the validator of a schema; what it refers to elsewhere is not fetched."""
    from jsonschema import Draft202012Validator
    from referencing import Registry

    return Draft202012Validator(schema, registry=Registry())


def _in_words(path: list[Any], message: str) -> str:
    place = "/".join(map(str, path))
    return f"{place}: {message[:200]}" if place else message[:200]
