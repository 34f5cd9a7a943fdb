"""Fields of an answer: typed by a person and converted by the request's schema, or defined by a program's type. Pure.

A pydantic model, a dataclass or a TypedDict defines the fields for a program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lemming.kernel.base.errors import ContractError, UsageError
from lemming.kernel.base.json_schema.schema_violations import describe_violations, find_schema_flaw
from lemming.kernel.base.jsontext import did_you_mean, to_line
from lemming.kernel.files.unknown_keys import describe_validation_error
from lemming.kernel.inboxes.answer_payload import ANSWER_KEY, ENVELOPE, collect_properties, needs_answer_key
from lemming.libraries.lenient_json import parse_or_default
from lemming.obligations.request_view import RequestView

Json = dict[str, Any]

_YES_TEXTS, _NO_TEXTS = ("yes", "y", "true"), ("no", "n", "false")


def get_answer_schema(request: RequestView) -> Json | None:
    """Return the schema of a request's answer, or None if any answer is valid or the schema is invalid."""
    schema = request.schema
    return None if schema is None or find_schema_flaw(schema)[0] else schema


def get_properties(schema: Json | None) -> Json:
    """Return the schemas of an answer's fields by name, empty if any answer is valid."""
    properties = (schema or {}).get("properties")
    return properties if isinstance(properties, dict) else {}


def parse_field(schema: Json | None, name: str, text: str) -> Any:
    """Return the value of a typed field. Raise `UsageError` with the name of an invalid field.

    >>> schema = dict(properties=dict(ok={"type": "boolean"}, count={"type": "integer"}))
    >>> parse_field(schema, "ok", "yes"), parse_field(schema, "count", "3")
    (True, 3)
    """
    properties = get_properties(schema)
    if name not in properties:
        if not properties:
            message = f'the request has no field "{name}": it expects a text'
            raise UsageError(message, hint="write lemming answer ID TEXT")
        hint = did_you_mean(name, list(properties)) or f"fields: {', '.join(properties)}"
        raise UsageError(f'the request has no field "{name}"', hint=hint)
    field = properties[name] if isinstance(properties[name], dict) else {}
    value = _parse_value(field, text)
    if violations := describe_violations(field, value):
        raise UsageError(f"{name}: {'; '.join(violations)}", hint=f"write {describe_field(schema, name)}")
    return value


def describe_field(schema: Json | None, name: str) -> str:
    """Return a description of the values accepted by a field.

    >>> describe_field({"properties": {"ok": dict(type="boolean", description="May it run?")}}, "ok")
    'yes or no; May it run?'
    """
    field = get_properties(schema).get(name)
    if not isinstance(field, dict):
        return "anything"
    field_description = field.get("description")
    choice = field.get("enum")
    values = map(str, choice) if isinstance(choice, list) else ()
    types = (_TYPE_DESCRIPTIONS.get(kind, kind) for kind in _get_types(field))
    description = ", ".join(values) or " or ".join(types) or "anything"
    is_described = isinstance(field_description, str) and field_description
    return f"{description}; {field_description}" if is_described else description


_TYPE_DESCRIPTIONS = {
    "string": "text", "boolean": "yes or no", "integer": "a whole number", "number": "a number",
    "null": "null", "object": "a JSON object", "array": "a JSON list",
}  # fmt: skip


def _get_types(field: Json) -> list[str]:
    kinds = field.get("type")
    return [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if isinstance(kind, str)]


def _parse_value(field: Json, text: str) -> Any:
    """Return a typed text as a value accepted by the field, or the text itself if conversion fails."""
    choice = field.get("enum")
    if isinstance(choice, list):
        return next((option for option in choice if str(option) == text.strip()), text)
    types = _get_types(field)
    normalized = text.strip().lower()
    if "boolean" in types and normalized in (*_YES_TEXTS, *_NO_TEXTS):
        return normalized in _YES_TEXTS
    if "string" in types:
        return text
    return parse_or_default(text, text)


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

    >>> _describe_error(dict(loc=("price",), type="greater_than", ctx=dict(gt=0), input=-3))
    '/price: expected a number above 0, got -3'
    """
    pointer = "".join(f"/{part}" for part in item["loc"])
    value_text = f", got {to_line(item['input'])[:100]}" if item["type"] == "value_error" else ""
    return f"{pointer and pointer + ': '}{describe_validation_error(item)}{value_text}"


def parse_answer(payload: Mapping[str, Any], schema: Mapping[str, Any] | None = None) -> Any:
    """Return the answer in a payload: the text alone if there is nothing else, or an object.

    If the schema does not declare `text`, the text is a comment and not part of the answer. A nested answer
    is under one key; earlier versions wrote the fields beside the other keys.
    """
    if needs_answer_key(schema) and isinstance(nested := payload.get(ANSWER_KEY), Mapping):
        return {**nested}
    properties = collect_properties(schema)
    fields = {key: value for key, value in payload.items() if key not in ENVELOPE or key in properties}
    if not properties and not isinstance(schema and schema.get("properties"), Mapping):
        return fields["text"] if fields.keys() == {"text"} else fields
    return {key: value for key, value in fields.items() if key != "text" or key in properties}
