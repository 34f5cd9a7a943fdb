"""The answer in a payload: all keys except the engine's own. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lemming.kernel.base.json_schema.schema_violations import resolve_ref
from lemming.kernel.base.untrusted_quoting import ENGINE_KEYS as ENGINE_KEYS

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
        pending.append(resolve_ref(schema, subschema.get("$ref")) if schema else None)
    return collected


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
