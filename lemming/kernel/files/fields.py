"""What a recorded value may hold: annotated types, and the JSON Schema that they stand for. Pure.

A type says it once, for mypy and for whoever reads a file that anybody may have written: `check_of`
makes the check of `schema_of(type)`. A dict in an `Annotated` adds keywords to the schema of its type; a type
in it (a TypedDict) takes its place. Of JSON Schema (draft 2020-12) only the keywords are known that our
tables of formats use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NotRequired,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.files.fitting import LARGEST_AMOUNT

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


# --- values held against a schema ----------------------------------------------------------------


KNOWN_TEXTS = 100_000  # as many as are remembered to be what a schema asks for

Check = Callable[[Any], "Wrong | None"]


class Wrong(NamedTuple):
    """Why a value is not what a schema asks for, and where in it: a JSON pointer."""

    why: str
    pointer: str = ""

    def __str__(self) -> str:
        return f"{self.pointer}: {self.why}" if self.pointer else self.why


def check_of(schema: Schema) -> Check:
    """Return the function that says what is wrong with a value, by the part of JSON Schema used here."""
    checks = list(_checks(schema))
    if len(checks) == 1:
        return checks[0]

    def check(value: Any) -> Wrong | None:
        for each in checks:
            if wrong := each(value):
                return wrong
        return None

    return check


def _checks(schema: Schema) -> Iterator[Check]:
    if "type" in schema:
        yield _of_type(schema["type"])
    if "const" in schema or "enum" in schema:
        allowed = schema.get("enum", [schema.get("const")])
        yield lambda value: None if isinstance(value, str) and value in allowed else _not_allowed(value)
    if "anyOf" in schema:
        branches = [check_of(branch) for branch in schema["anyOf"]]
        yield lambda value: None if any(not check(value) for check in branches) else _not_allowed(value)
    if "minimum" in schema or "maximum" in schema:
        least, most = schema.get("minimum", float("-inf")), schema.get("maximum", float("inf"))
        yield lambda value: None if value is None or least <= value <= most else _not_allowed(value)
    if "pattern" in schema:
        matches, longest = re.compile(schema["pattern"]).fullmatch, schema.get("maxLength", 1 << 30)
        yield lambda value: None if len(value) <= longest and matches(value) else _not_allowed(value)
    if "format" in schema:
        yield _names_a_moment
    if "items" in schema:
        of_one = check_of(schema["items"])
        yield _of_texts(of_one) if schema["items"].get("type") == "string" else _of_items(of_one)
    if schema.get("uniqueItems"):
        yield lambda value: None if len({*value}) == len(value) else Wrong("something stands there twice")
    if "properties" in schema:
        yield _of_properties(schema)
    if "propertyNames" in schema:
        yield _of_items(check_of(schema["propertyNames"]))  # its keys
    if "additionalProperties" in schema:
        yield _of_values(check_of(schema["additionalProperties"]))


def _of_type(name: str | list[str]) -> Check:
    names = [name] if isinstance(name, str) else name
    types = frozenset(kind for each in names for kind in _TYPES[each])
    wanted = " or ".join(map(_WORDS.__getitem__, names))
    return lambda value: None if type(value) in types else Wrong(f"expected {wanted}, found {shown(value)}")


_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "boolean": (bool,), "integer": (int,), "number": (int, float), "null": (type(None),),
    "object": (dict,), "array": (list,),
}  # fmt: skip
_WORDS = {
    "string": "text", "boolean": "true or false", "integer": "a whole number", "number": "a number",
    "null": "null", "object": "an object", "array": "a list",
}  # fmt: skip


def _of_items(check: Check) -> Check:
    def check_items(value: Any) -> Wrong | None:
        for index, item in enumerate(value):
            if wrong := check(item):
                return _inside(index, wrong)
        return None

    return check_items


def _of_texts(check: Check) -> Check:
    """Do what `_of_items` does for texts, once for each: every tick's plan names the same agents."""
    known: set[str] = set()
    check_each = _of_items(check)

    def check_texts(value: Any) -> Wrong | None:
        try:
            if known.issuperset(value):
                return None
        except TypeError:  # something in it is no text
            return check_each(value)
        if wrong := check_each(value):
            return wrong
        if len(known) < KNOWN_TEXTS:
            known.update(value)
        return None

    return check_texts


def _of_values(check: Check) -> Check:
    def check_values(value: Any) -> Wrong | None:
        for key, item in value.items():
            if wrong := check(item):
                return _inside(key[:80], wrong)
        return None

    return check_values


def _of_properties(schema: Schema) -> Check:
    checks = {key: check_of(inner) for key, inner in schema["properties"].items()}
    required = schema["required"]

    def check_properties(value: Any) -> Wrong | None:
        if value is None:  # where null is allowed too
            return None
        for key in required:
            if key not in value:
                return Wrong("this key is required", f"/{key}")
        for key, check in checks.items():
            if key in value and (wrong := check(value[key])):
                return _inside(key, wrong)
        return None

    return check_properties


def _inside(key: str | int, wrong: Wrong) -> Wrong:
    return Wrong(wrong.why, f"/{key}{wrong.pointer}")


def _names_a_moment(value: Any) -> Wrong | None:
    try:
        parse_timestamp(value)
    except ValueError:
        return Wrong(f"expected a time, found {shown(value)}")
    return None


def _not_allowed(value: Any) -> Wrong:
    return Wrong(f"{shown(value)} is not one that is allowed here")


def shown(value: Any) -> str:
    """Return a value as an error shows it: short, and nothing that a terminal would obey."""
    if isinstance(value, str):
        printable = "".join(letter if letter.isprintable() else "?" for letter in value[:60])
        return f'"{printable}"'
    names = {dict: "an object", list: "a list", bool: "true or false", type(None): "null"}
    return names.get(type(value)) or str(value)[:60]
