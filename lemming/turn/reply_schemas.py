"""The schemas of replies, for backends that constrain what they answer. Pure.

Hosted structured output takes closed objects only, in which every property is required; a property that may
be absent is null there. Which reply they describe, and how it is read: `lemming.base.contract`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from lemming.base.contract import MAX_ENTRIES
from lemming.base.json_schema import part_of

Json = dict[str, Any]
BRIEF_CHARS = 160
BRIEF_ITEMS = 8
DEEPEST = 12
MOST_PARTS = 500
MOST_LISTED = 20
NOT_CARRIED = (
    "$dynamicRef", "allOf", "contains", "dependentRequired", "dependentSchemas", "else", "if", "not", "oneOf",
    "patternProperties", "prefixItems", "propertyNames", "then", "unevaluatedProperties",
)  # fmt: skip
"""Keywords of JSON Schema that no backend is given: a schema with one of them is held to afterwards only."""
_LIMITS = (
    "exclusiveMaximum", "exclusiveMinimum", "format", "maxItems", "maxLength", "maximum", "minItems",
    "minLength", "minimum", "multipleOf", "pattern", "uniqueItems",
)  # fmt: skip


class Form(NamedTuple):
    """What the payloads of entries of some kinds must be; those of `only` are never anything else."""

    kinds: tuple[str, ...]
    only: tuple[str, ...]
    schema: Json


class NotCarried(ValueError):
    """A schema that no closed one stands for; the message says why."""


def reply_schema(
    *,
    kinds: Iterable[str],
    tools: Mapping[str, Json],
    max_entries: int = MAX_ENTRIES,
    forms: Iterable[Form] = (),
) -> Json:
    """Return the wire schema, narrowed to what one agent may do.

    Every object is closed and every property required, as hosted structured output demands; `tools` maps
    the names of allowed tools to the JSON Schema of their arguments.
    """
    text: Json = {"type": "string"}
    entries = [*_entries([*kinds], [*forms])]
    entry = entries[0] if len(entries) == 1 else {"anyOf": entries}
    call = {"anyOf": [_wire_call(name, schema) for name, schema in tools.items()]}
    update = _closed({"key": text, "value_json": text})
    return _closed(
        {
            "outbox_entries": {"type": "array", "items": entry, "maxItems": max_entries},
            "tool_calls": {"type": "array", "items": call}
            if tools
            else {"type": "array", "items": text, "maxItems": 0},
            "memory_updates": {"type": "array", "items": update},
            "notes": text,
        }
    )


def brief_schema(*, kinds: Iterable[str], max_chars: int = BRIEF_CHARS, form: Form | None = None) -> Json:
    """Return the narrowest schema, exactly one entry with a text: rails for a very small model.

    With a form that can be carried, the entry is of one of its kinds, and has its fields.
    """
    nothing = {"type": "array", "items": {"type": "string"}, "maxItems": 0}
    kinds = list(kinds)
    text = {"type": "string", "minLength": 1, "maxLength": max_chars}
    properties: Json = {"text": text}
    if form and not why_not_carried(form.schema):
        kinds = [kind for kind in kinds if kind in form.kinds] or kinds
        properties |= _bounded(carried(form.schema)["properties"], max_chars)
    entry = _closed(
        {
            "kind": {"type": "string", "enum": kinds},
            "payload": _closed(properties),
            "tags": nothing,
        }
    )
    return _closed(
        {
            "outbox_entries": {"type": "array", "items": entry, "minItems": 1, "maxItems": 1},
            "tool_calls": nothing,
            "memory_updates": nothing,
            "notes": {"type": "string", "enum": [""]},
        }
    )


def _entries(kinds: list[str], forms: list[Form]) -> Iterator[Json]:
    """Yield the schemas of entries: those of any form, those of the forms, answers that say there is none."""
    text: Json = {"type": "string"}
    optional = {"anyOf": [text, {"type": "null"}]}
    further = {"target": optional, "data_json": optional}
    forms = [form for form in forms if not why_not_carried(form.schema)]
    free = [kind for kind in kinds if not any(kind in form.only for form in forms)]
    if free:
        yield _entry(free, {"text": text, **further})
    for form in forms:
        yield _entry(form.kinds, {"text": text, **further, **carried(form.schema)["properties"]})
    if any("response" in form.only for form in forms):
        yield _entry(
            ["response"], {"text": text, "status": {"type": "string", "enum": ["failed", "refused"]}}
        )


def _entry(kinds: Iterable[str], properties: Json) -> Json:
    tags = {"type": "array", "items": {"type": "string"}}
    kind = {"type": "string", "enum": [*kinds]}
    return _closed({"kind": kind, "payload": _closed(properties), "tags": tags})


# --- a schema that a person or an agent wrote, as backends take it ------------------------------


def why_not_carried(schema: Json) -> str:
    """Return why no closed schema stands for one of a payload; empty when one does."""
    try:
        return "" if "properties" in carried(schema) else "it is not that of an object"
    except NotCarried as error:
        return str(error)


def carried(schema: Json) -> Json:
    """Return the closed schema that stands for another; raise `NotCarried`.

    Limits of a value become words of its description: they are held to afterwards.

    >>> carried({"properties": {"price": {"type": "number", "minimum": 0}}, "required": ["price"]})
    ... # doctest: +NORMALIZE_WHITESPACE
    {'type': 'object', 'properties': {'price': {'type': 'number', 'description': 'minimum: 0'}},
     'required': ['price'], 'additionalProperties': False}
    """
    return _Carrying(schema).carry(schema, "", 0)


class _Carrying:
    def __init__(self, whole: Json) -> None:
        self._whole, self._left = whole, MOST_PARTS

    def carry(self, schema: Any, place: str, depth: int) -> Json:
        self._left -= 1
        if depth > DEEPEST or self._left < 0:
            raise NotCarried(f"{place or '/'}: it goes too deep, or refers to itself")
        if not isinstance(schema, dict):
            raise NotCarried(f"{place or '/'}: any value will do there")
        if "$ref" in schema:
            return self.carry(self._referred(schema["$ref"], place), place, depth + 1)
        if uncarried := next((key for key in NOT_CARRIED if key in schema), ""):
            raise NotCarried(f"{place}/{uncarried} cannot be said there")
        return {**self._value(schema, place, depth), **_described(schema)}

    def _value(self, schema: Json, place: str, depth: int) -> Json:
        kind = schema.get("type", "object" if "properties" in schema else None)
        if "anyOf" in schema:
            branches = [
                self.carry(it, f"{place}/anyOf/{at}", depth + 1) for at, it in enumerate(schema["anyOf"])
            ]
            return {"anyOf": branches}
        if "enum" in schema or "const" in schema:
            return _listed(schema.get("enum", [schema.get("const")]), place)
        if isinstance(kind, list):
            return {"anyOf": [self._value({**schema, "type": one}, place, depth + 1) for one in kind]}
        if kind == "object":
            return self._object(schema, place, depth)
        if kind == "array":
            return {"type": "array", "items": self.carry(schema.get("items"), f"{place}/items", depth + 1)}
        if kind == "integer" and (few := _few_numbers(schema)):
            return {"type": "integer", "enum": few}
        if kind in ("string", "integer", "number", "boolean", "null"):
            return {"type": kind}
        raise NotCarried(f"{place or '/'}: it has no type")

    def _object(self, schema: Json, place: str, depth: int) -> Json:
        properties, required = schema.get("properties"), schema.get("required", [])
        if not properties or isinstance(schema.get("additionalProperties"), dict):
            raise NotCarried(f"{place or '/'}: its keys are not laid down")
        inner = {
            key: self.carry(it, f"{place}/properties/{key}", depth + 1) for key, it in properties.items()
        }
        return _closed({key: it if key in required else _or_null(it) for key, it in inner.items()})

    def _referred(self, pointer: Any, place: str) -> Any:
        found = part_of(self._whole, pointer)
        if found is None:
            raise NotCarried(f"{place}/$ref: {str(pointer)[:80]} is not in it")
        return found


def _listed(values: list[Any], place: str) -> Json:
    names = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
    kinds = {names.get(type(value), "") for value in values}
    if len(kinds) != 1 or "" in kinds:
        raise NotCarried(f"{place}/enum: its values are not of one simple type")
    return {"type": kinds.pop(), "enum": values}


def _few_numbers(schema: Json) -> list[int]:
    """Return the whole numbers between two limits where they are few: every backend can keep to a list."""
    low, high = schema.get("minimum"), schema.get("maximum")
    if not isinstance(low, int) or not isinstance(high, int) or not 0 <= high - low < MOST_LISTED:
        return []
    return [*range(low, high + 1)]


def _described(schema: Json) -> Json:
    about = schema.get("description")
    limits = [f"{key}: {schema[key]}" for key in _LIMITS if key in schema]
    words = "; ".join([*([about] if isinstance(about, str) else []), *limits])
    return {"description": words} if words else {}


def _or_null(schema: Json) -> Json:
    return {"anyOf": [schema, {"type": "null"}]}


def _bounded(properties: Json, max_chars: int) -> Json:
    """Return properties whose texts and lists end, so that a very small model ends too."""
    return {key: _with_ends(schema, max_chars) for key, schema in properties.items()}


def _with_ends(schema: Json, max_chars: int) -> Json:
    schema = {**schema}
    if schema.get("type") == "string" and "enum" not in schema:
        schema["maxLength"] = max_chars
    if "anyOf" in schema:
        schema["anyOf"] = [_with_ends(branch, max_chars) for branch in schema["anyOf"]]
    if "items" in schema:
        schema |= {"items": _with_ends(schema["items"], max_chars), "maxItems": BRIEF_ITEMS}
    if "properties" in schema:
        schema["properties"] = _bounded(schema["properties"], max_chars)
    return schema


def _closed(properties: Json) -> Json:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _wire_call(name: str, schema: Json) -> Json:
    tool = {"type": "string", "const": name}
    properties: Json = schema.get("properties", {})
    if schema.get("additionalProperties", True) is not False or not all(map(_is_plain, properties.values())):
        return _closed({"tool": tool, "args_json": {"type": "string"}})
    required = schema.get("required", [])
    args = {key: _wire_value(value, key in required) for key, value in properties.items()}
    return _closed({"tool": tool, "args": _closed(args)})


def _is_plain(schema: Any) -> bool:
    """Whether a value's schema may appear in a closed wire schema as it is."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind == "array":
        return _is_plain(schema.get("items", {}))
    return kind in ("string", "integer", "number", "boolean")


def _wire_value(schema: Json, is_required: bool) -> Json:
    kept: Json = {key: schema[key] for key in ("type", "description", "enum", "items") if key in schema}
    return kept if is_required else {"anyOf": [kept, {"type": "null"}]}
