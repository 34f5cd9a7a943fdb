"""What a recorded value may hold: annotated types, and the JSON Schema that they stand for. Pure.

A type says it once, for mypy and for whoever reads a file that anybody may have written: `check_of` in
`check_schema` makes the check of `schema_of(type)`. A dict in an `Annotated` adds keywords to the schema of
its type; a type in it (a TypedDict) takes its place.
"""

from __future__ import annotations

from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from lemming.files.fitting import LARGEST_AMOUNT

Json = dict[str, Any]
Schema = dict[str, Any]

# No part of a path may be "..", and no character in it may be a control character.
PATH_PATTERN = r"^(?!([^\x00-\x1f]*/)?\.\.(/|$))[^\x00-\x1f\x7f]+$"
AT_MOST = {"minimum": 0, "maximum": LARGEST_AMOUNT}

AgentName = Annotated[str, {"pattern": "^[a-z0-9][a-z0-9_-]{0,62}$"}]
Count = Annotated[int, {"minimum": 0, "maximum": int(LARGEST_AMOUNT)}]
Amount = Annotated[float, AT_MOST]
Price = Annotated[float | None, AT_MOST]
Moment = Annotated[str, {"format": "date-time"}]
Place = Annotated[str, {"pattern": PATH_PATTERN, "maxLength": 4096}]
EntryFile = Annotated[
    str, {"pattern": "^agents/[a-z0-9][a-z0-9_-]{0,62}/outbox/[0-9]{8,12}_[A-Za-z0-9]{1,64}[.]json$"}
]
Digest = Annotated[str, {"pattern": "^[0-9a-f]{64}$"}]

_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def object_of(required: Schema, optional: Schema | None = None) -> Schema:
    """Return the schema of an object by those of its keys; keys that it does not name are allowed."""
    return {"type": "object", "properties": {**required, **(optional or {})}, "required": [*required]}


def schema_of(kind: Any) -> Schema:
    """Return the schema of a type.

    >>> schema_of(dict[str, int | None])
    {'type': 'object', 'additionalProperties': {'type': ['integer', 'null']}}
    """
    if kind is Any:
        return {}
    if isinstance(kind, type) and kind in _NAMES:
        return {"type": _NAMES[kind]}
    if is_typeddict(kind):
        return _of_keys(get_type_hints(kind, include_extras=True))
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        schema = schema_of(args[0])
        for note in args[1:]:
            schema |= note if isinstance(note, dict) else schema_of(note)
        return schema
    if origin is Literal:
        return {"const": args[0]} if len(args) == 1 else {"enum": [*args]}
    if origin is list:
        return {"type": "array", "items": schema_of(args[0])}
    if origin is dict:
        keys, values = schema_of(args[0]), schema_of(args[1])
        named = {"propertyNames": keys} if "pattern" in keys else {}
        return {"type": "object", **named, **({"additionalProperties": values} if values else {})}
    (some,) = (arg for arg in args if arg is not type(None))  # of a union: with None only
    schema = schema_of(some)
    return {**schema, "type": [schema["type"], "null"]}


def _of_keys(hints: dict[str, Any]) -> Schema:
    optional = {key: get_args(kind)[0] for key, kind in hints.items() if get_origin(kind) is NotRequired}
    required = {key: schema_of(kind) for key, kind in hints.items() if key not in optional}
    return object_of(required, {key: schema_of(kind) for key, kind in optional.items()})
