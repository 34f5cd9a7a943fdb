"""What a payload answers: all of it but what the engine keeps in it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lemming.kernel.base.payload_text import OF_THE_ENGINE as OF_THE_ENGINE

ENVELOPE = frozenset({"reply_to", "status", "target", "owed_to", "parent", "conversation", "spent"})
"""Keys of an answer's payload that are not the answer, unless its schema names them."""
MAY_ANSWER = ("message", "report")
"""Kinds whose entry is taken for the answer where none is of kind response: a small model's."""
KEYS_OF_REQUESTS = OF_THE_ENGINE | {
    "asked", "call", "cancels", "gate", "hands_on", "hops", "not_after", "not_before", "owed_to", "status",
    "text",
}  # fmt: skip
"""Keys that mean something in the payload of a request, and of what answers, moves or ends one."""


APART = "answer"
"""The key under which an answer stands whose request asks for a form with a word of requests as a field."""
_PARTS = ("allOf", "anyOf", "oneOf", "then", "else")
_MOST_PARTS = 200
_WORDS = (KEYS_OF_REQUESTS | ENVELOPE) - {"text"}


def fields_of(schema: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the properties that a schema names, also in its parts and in what it refers to.

    >>> sorted(fields_of({"$ref": "#/$defs/M", "$defs": {"M": {"properties": {"a": {}}, "required": ["b"]}}}))
    ['a', 'b']
    """
    found: dict[str, Any] = {}
    pending: list[Any] = [schema]
    for part in pending:
        if not isinstance(part, Mapping) or len(pending) > _MOST_PARTS:
            continue
        required, properties = part.get("required"), part.get("properties")
        names = required if isinstance(required, list) else ()
        found = {**{it: {} for it in names if isinstance(it, str)}, **found}
        found |= properties if isinstance(properties, Mapping) else {}
        for key in _PARTS:
            pending += it if isinstance(it := part.get(key), list) else [it]
        pending.append(_referred_to(schema, part.get("$ref")))
    return found


def _referred_to(schema: Mapping[str, Any] | None, reference: object) -> Any:
    """Return the part of a schema that a reference names; None where it names none in the schema itself."""
    part: Any = schema
    names = reference.split("/") if isinstance(reference, str) else []
    if names[:1] != ["#"]:
        return None
    for name in names[1:]:
        part = part.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(part, Mapping) else None
    return part


def is_apart(schema: Mapping[str, Any] | None) -> bool:
    """Return True if answers of a form stand apart from the words of requests: one of these is its field.

    >>> is_apart({"properties": {"price": {}}}), is_apart({"properties": {"status": {}}})
    (False, True)
    """
    return not _WORDS.isdisjoint(fields_of(schema))


def with_answer_apart(payload: Mapping[str, Any], schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a payload with the fields of its form under one key, if they must stand apart.

    >>> form = {"properties": {"status": {}, "price": {}}}
    >>> with_answer_apart({"text": "there", "status": "failed", "price": 3}, form)
    {'text': 'there', 'answer': {'status': 'failed', 'price': 3}}
    """
    if not is_apart(schema) or isinstance(payload.get(APART), Mapping):
        return {**payload}
    named = fields_of(schema)
    rest = {key: value for key, value in payload.items() if key in _WORDS - named.keys() or key == "text"}
    fields = {key: value for key, value in payload.items() if key not in rest or key in named}
    return {**rest, APART: fields} if fields else {**payload}


def answer_in(payload: Mapping[str, Any], schema: Mapping[str, Any] | None = None) -> Any:
    """Return what a payload answers: its text where that is all it has, else an object.

    Beside a schema that does not name it, `text` is what is said to the answer, and no part of it. What a
    form keeps apart stands under one key; earlier versions wrote it among the others.
    """
    if is_apart(schema) and isinstance(apart := payload.get(APART), Mapping):
        return {**apart}
    named = fields_of(schema)
    fields = {key: value for key, value in payload.items() if key not in ENVELOPE or key in named}
    if not named and not isinstance(schema and schema.get("properties"), Mapping):
        return fields["text"] if fields.keys() == {"text"} else fields
    return {key: value for key, value in fields.items() if key != "text" or key in named}
