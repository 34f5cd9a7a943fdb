"""The answer in a payload: all keys except the engine's own. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lemming.kernel.base.payload_text import ENGINE_KEYS as ENGINE_KEYS

ENVELOPE = frozenset({"reply_to", "status", "target", "owed_to", "parent", "conversation", "spent", "until"})
"""Keys of an answer's payload that are not the answer, unless its schema names them."""
ANSWER_KINDS = ("message", "report")
"""Kinds that count as an answer if the turn wrote no response, as small models do."""
REQUEST_KEYS = ENGINE_KEYS | {
    "asked", "call", "cancels", "gate", "hands_on", "hops", "not_after", "not_before", "owed_to", "status",
    "text", "until",
}  # fmt: skip
"""Reserved keys in the payload of a request, and of an entry that answers, moves or ends a request."""


ANSWER_KEY = "answer"
"""Key of an answer if the requested schema uses a reserved key as a field."""
_SUBSCHEMA_KEYS = ("allOf", "anyOf", "oneOf", "then", "else")
_MAX_SUBSCHEMAS = 200
_RESERVED_KEYS = (REQUEST_KEYS | ENVELOPE) - {"text"}


def collect_properties(schema: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the properties declared by a schema, the subschemas and the references.

    >>> definitions = {"M": dict(properties={"a": {}}, required=["b"])}
    >>> sorted(collect_properties({"$ref": "#/$defs/M"} | {"$defs": definitions}))
    ['a', 'b']
    """
    collected: dict[str, Any] = {}
    pending: list[Any] = [schema]
    for subschema in pending:
        if not isinstance(subschema, Mapping) or len(pending) > _MAX_SUBSCHEMAS:
            continue
        required, properties = subschema.get("required"), subschema.get("properties")
        names = required if isinstance(required, list) else ()
        collected = {**{item: {} for item in names if isinstance(item, str)}, **collected}
        collected |= properties if isinstance(properties, Mapping) else {}
        for key in _SUBSCHEMA_KEYS:
            pending += item if isinstance(item := subschema.get(key), list) else [item]
        pending.append(_resolve_reference(schema, subschema.get("$ref")))
    return collected


def _resolve_reference(schema: Mapping[str, Any] | None, reference: object) -> Any:
    """Return the part of a schema a reference points to, or None if the reference is not internal."""
    subschema: Any = schema
    names = reference.split("/") if isinstance(reference, str) else []
    if names[:1] != ["#"]:
        return None
    for name in names[1:]:
        subschema = (
            subschema.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(subschema, Mapping) else None
        )
    return subschema


def needs_answer_key(schema: Mapping[str, Any] | None) -> bool:
    """Return True if answers of a payload schema need their own key, because a field has a reserved name.

    >>> needs_answer_key({"properties": {"price": {}}}), needs_answer_key({"properties": {"status": {}}})
    (False, True)
    """
    return not _RESERVED_KEYS.isdisjoint(collect_properties(schema))


def nest_answer(payload: Mapping[str, Any], schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a payload with the fields of its schema nested under one key, if the schema requires nesting.

    >>> form = {"properties": dict(status={}, price={})}
    >>> nest_answer(dict(text="there", status="failed", price=3), form)
    {'text': 'there', 'answer': {'status': 'failed', 'price': 3}}
    """
    if not needs_answer_key(schema) or isinstance(payload.get(ANSWER_KEY), Mapping):
        return {**payload}
    properties = collect_properties(schema)
    request_values = {
        key: value for key, value in payload.items() if key in _RESERVED_KEYS - properties.keys() or key == "text"
    }
    fields = {key: value for key, value in payload.items() if key not in request_values or key in properties}
    return {**request_values, ANSWER_KEY: fields} if fields else {**payload}


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
