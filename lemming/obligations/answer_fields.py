"""Parse the fields of an answer: texts typed by a person, converted by the schema of the request. Pure."""

from __future__ import annotations

from typing import Any

from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.json_schema.schema_violations import describe_violations, find_schema_flaw
from lemming.kernel.base.jsontext import JsonProblem, did_you_mean, parse
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
            raise UsageError(
                f'the request has no field "{name}": it expects a text', hint="write lemming answer ID TEXT"
            )
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
    description = _describe_choice(field) or " or ".join(
        _TYPE_DESCRIPTIONS.get(kind, kind) for kind in _get_types(field)
    )
    return "; ".join(
        filter(None, (description or "anything", field_description if isinstance(field_description, str) else ""))
    )


_TYPE_DESCRIPTIONS = {
    "string": "text", "boolean": "yes or no", "integer": "a whole number", "number": "a number",
    "null": "null", "object": "a JSON object", "array": "a JSON list",
}  # fmt: skip


def _describe_choice(field: Json) -> str:
    choice = field.get("enum")
    return ", ".join(map(str, choice)) if isinstance(choice, list) else ""


def _get_types(field: Json) -> list[str]:
    kind = field.get("type")
    return (
        [kind]
        if isinstance(kind, str)
        else [item for item in kind if isinstance(item, str)]
        if isinstance(kind, list)
        else []
    )


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
    try:
        return parse(text)
    except JsonProblem:
        return text
