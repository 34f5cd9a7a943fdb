"""Answers as typed values: a pydantic model, a dataclass or a TypedDict defines the answer's fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lemming.kernel.base.errors import ContractError, UsageError
from lemming.kernel.base.json_schema.schema_violations import find_schema_flaw
from lemming.kernel.base.jsontext import to_line

Json = dict[str, Any]
Reading = tuple[Json, Callable[[Any], Any]]
"""A JSON Schema, and the conversion of a valid answer to a value."""
MAX_REASONS = 5


def require_usable(schema: Json | None) -> Json | None:
    """Return a JSON Schema unchanged. Raise `UsageError` for an unusable schema."""
    flaw, pointer = find_schema_flaw(schema or {})
    if flaw:
        raise UsageError(f"schema{pointer and ' ' + pointer}: {flaw}", hint="see docs/requests.md")
    return schema


def make_answer_parser(answer_type: type[Any]) -> Reading:
    """Return the JSON Schema of a type with fields, and a function to convert an answer into the type.

    Raises `UsageError` for a type without fields or with an unusable schema. The function raises
    `ContractError` with the violations for an answer rejected by the type but valid under the schema.
    """
    from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError

    name = getattr(answer_type, "__name__", str(answer_type))
    hint = "use a pydantic model, a dataclass or a TypedDict"
    try:
        adapter: Any = TypeAdapter(answer_type)
        schema = adapter.json_schema()
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"{name} does not describe an answer: {reason}", hint=hint) from error
    if "properties" not in schema:
        raise UsageError(f"{name} must have at least one field", hint=hint)
    if (flaw := find_schema_flaw(schema))[0]:
        raise UsageError(f"{name} has no usable JSON Schema: {flaw[1]} {flaw[0]}", hint="see docs/requests.md")

    def parse_answer(answer: Any) -> Any:
        try:
            return adapter.validate_python(answer)
        except ValidationError as error:
            violations = [_describe_error(item) for item in error.errors(include_url=False)[:MAX_REASONS]]
            raise ContractError(f"the answer is no {name}: {'; '.join(violations)}") from error

    return schema, parse_answer


def _describe_error(item: Any) -> str:
    """Return an item of a `ValidationError` as text: location, message and value.

    >>> _describe_error(dict(loc=("price",), msg="Input should be greater than 0", input=-3))
    '/price: Input should be greater than 0, found -3'
    """
    pointer = "".join(f"/{part}" for part in item["loc"])
    return f"{pointer and pointer + ': '}{item['msg']}, found {to_line(item['input'])[:100]}"
