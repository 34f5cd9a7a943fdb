"""Answers as values of a type: a pydantic model, a dataclass or a TypedDict says what is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lemming.kernel.base.errors import ContractError, UsageError
from lemming.kernel.base.json_schema.violations import flaw_of
from lemming.kernel.base.jsontext import to_line

Json = dict[str, Any]
Reading = tuple[Json, Callable[[Any], Any]]
"""A JSON Schema, and what makes a value of an answer that satisfies it."""
MOST_REASONS = 5


def usable(schema: Json | None) -> Json | None:
    """Return a JSON Schema as it is. Raises `UsageError` for one of no use."""
    flaw, pointer = flaw_of(schema or {})
    if flaw:
        raise UsageError(f"schema{pointer and ' ' + pointer}: {flaw}", hint="docs/requests.md")
    return schema


def typed_as(wanted: type[Any]) -> Reading:
    """Return the JSON Schema of a type with fields, and what makes a value of the type of an answer.

    Raises `UsageError` for a type that has no fields, or whose schema cannot be used; the second raises
    `ContractError` for an answer that the type refuses though its schema does not: with what did not fit.
    """
    from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError

    name = getattr(wanted, "__name__", str(wanted))
    hint = "a pydantic model, a dataclass or a TypedDict"
    try:
        adapter: Any = TypeAdapter(wanted)
        schema = adapter.json_schema()
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        why = str(error).partition("\n")[0]
        raise UsageError(f"{name} says nothing of an answer's form: {why}", hint=hint) from error
    if "properties" not in schema:
        raise UsageError(f"{name} has no fields that an answer could have", hint=hint)
    if (flaw := flaw_of(schema))[0]:
        raise UsageError(f"nobody can be held to {name}: {flaw[1]} {flaw[0]}", hint="docs/requests.md")

    def value_of(answer: Any) -> Any:
        try:
            return adapter.validate_python(answer)
        except ValidationError as error:
            wrong = [_in_words(item) for item in error.errors(include_url=False)[:MOST_REASONS]]
            raise ContractError(f"the answer is no {name}: {'; '.join(wrong)}") from error

    return schema, value_of


def _in_words(item: Any) -> str:
    """Return what one item of a `ValidationError` says: where, what, and what was found there.

    >>> _in_words({"loc": ("price",), "msg": "Input should be greater than 0", "input": -3})
    '/price: Input should be greater than 0, found -3'
    """
    place = "".join(f"/{part}" for part in item["loc"])
    return f"{place and place + ': '}{item['msg']}, found {to_line(item['input'])[:100]}"
