"""Answers as values of a type: a pydantic model, a dataclass or a TypedDict says what is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lemming.base.errors import ContractError, UsageError
from lemming.base.json_schema import flaw_of

Json = dict[str, Any]
Schema = Json | type[Any] | None


def schema_of(wanted: Schema) -> tuple[Json | None, Callable[[Any], Any]]:
    """Return the JSON Schema of what is asked for, and what makes a value of an answer.

    Raises `UsageError` for a type that has no fields, or a schema that cannot be used; the value,
    `ContractError` for an answer that the type refuses though its schema does not.
    """
    if wanted is None or isinstance(wanted, dict):
        flaw, pointer = flaw_of(wanted or {})
        if flaw:
            raise UsageError(f"schema{pointer and ' ' + pointer}: {flaw}", hint="docs/answers.md")
        return wanted, lambda answer: answer
    from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError

    name = getattr(wanted, "__name__", str(wanted))
    hint = "a JSON Schema, a pydantic model, a dataclass or a TypedDict"
    try:
        adapter: Any = TypeAdapter(wanted)
        schema = adapter.json_schema()
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        why = str(error).partition("\n")[0]
        raise UsageError(f"{name} says nothing of an answer's form: {why}", hint=hint) from error
    if "properties" not in schema:
        raise UsageError(f"{name} has no fields that an answer could have", hint=hint)

    def value_of(answer: Any) -> Any:
        try:
            return adapter.validate_python(answer)
        except ValidationError as error:
            raise ContractError(f"the answer is no {name}: {error.errors()[0]['msg']}") from error

    return schema, value_of
