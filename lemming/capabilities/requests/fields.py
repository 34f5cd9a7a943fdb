"""The fields of an answer as a person types them: texts, read by the schema of the request. Pure."""

from __future__ import annotations

from typing import Any

from lemming.capabilities.requests.view import RequestView
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.json_schema.violations import flaw_of, misfits
from lemming.kernel.base.jsontext import JsonProblem, nearest, parse

Json = dict[str, Any]

_YES, _NO = ("yes", "y", "true"), ("no", "n", "false")


def schema_for(request: RequestView) -> Json | None:
    """Return the schema of a request's answer; None when any will do, or the schema itself is wrong."""
    schema = request.schema
    return None if schema is None or flaw_of(schema)[0] else schema


def properties_of(schema: Json | None) -> Json:
    """Return the schemas of an answer's fields by name; none when any answer will do."""
    properties = (schema or {}).get("properties")
    return properties if isinstance(properties, dict) else {}


def read_field(schema: Json | None, name: str, typed: str) -> Any:
    """Return the value of a field that was typed; raise `UsageError` that names the field.

    >>> schema = {"properties": {"ok": {"type": "boolean"}, "count": {"type": "integer"}}}
    >>> read_field(schema, "ok", "yes"), read_field(schema, "count", "3")
    (True, 3)
    """
    properties = properties_of(schema)
    if name not in properties:
        if not properties:
            raise UsageError(f'no field "{name}": it is answered with a text', hint="lemming answer ID TEXT")
        hint = nearest(name, list(properties)) or f"fields: {', '.join(properties)}"
        raise UsageError(f'there is no field "{name}"', hint=hint)
    field = properties[name] if isinstance(properties[name], dict) else {}
    value = _value(field, typed)
    if wrong := misfits(field, value):
        raise UsageError(f"{name}: {'; '.join(wrong)}", hint=f"expected {words_of(schema, name)}")
    return value


def words_of(schema: Json | None, name: str) -> str:
    """Return what a field must be, in words.

    >>> words_of({"properties": {"ok": {"type": "boolean", "description": "May it run?"}}}, "ok")
    'yes or no; May it run?'
    """
    field = properties_of(schema).get(name)
    if not isinstance(field, dict):
        return "anything"
    about = field.get("description")
    words = _words_of_choice(field) or " or ".join(_WORDS.get(kind, kind) for kind in _types(field))
    return "; ".join(filter(None, (words or "anything", about if isinstance(about, str) else "")))


_WORDS = {
    "string": "text", "boolean": "yes or no", "integer": "a whole number", "number": "a number",
    "null": "null", "object": "a JSON object", "array": "a JSON list",
}  # fmt: skip


def _words_of_choice(field: Json) -> str:
    choice = field.get("enum")
    return ", ".join(map(str, choice)) if isinstance(choice, list) else ""


def _types(field: Json) -> list[str]:
    kind = field.get("type")
    return (
        [kind]
        if isinstance(kind, str)
        else [it for it in kind if isinstance(it, str)]
        if isinstance(kind, list)
        else []
    )


def _value(field: Json, typed: str) -> Any:
    """Return what was typed as a value that the field may have, if it can be read as one; else the text."""
    choice = field.get("enum")
    if isinstance(choice, list):
        return next((it for it in choice if str(it) == typed.strip()), typed)
    types = _types(field)
    word = typed.strip().lower()
    if "boolean" in types and word in (*_YES, *_NO):
        return word in _YES
    if "string" in types:
        return typed
    try:
        return parse(typed)
    except JsonProblem:
        return typed
