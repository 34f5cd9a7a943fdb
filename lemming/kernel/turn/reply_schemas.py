"""The schemas of replies, for backends that constrain what they answer. Pure.

Hosted structured output takes closed objects only, in which every property is required; a property that may
be absent is null there. Which reply they describe, and how it is read: `lemming.kernel.base.contract`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from lemming.kernel.base.contract import MAX_ENTRIES

Json = dict[str, Any]
BRIEF_CHARS = 160
BRIEF_ITEMS = 8


class Form(NamedTuple):
    """What the payloads of entries of some kinds must be; those of `only` are never anything else.

    `properties`: of the closed object that a payload is, each required; None: no such object stands for it.
    """

    kinds: tuple[str, ...]
    only: tuple[str, ...]
    properties: Json | None


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
    call = {"anyOf": [wire_call(name, schema) for name, schema in tools.items()]}
    update = closed({"key": text, "value_json": text})
    return closed(
        {
            "outbox_entries": {"type": "array", "items": entry, "maxItems": max_entries},
            "tool_calls": {"type": "array", "items": call}
            if tools
            else {"type": "array", "items": text, "maxItems": 0},
            "memory_updates": {"type": "array", "items": update},
            "notes": text,
        }
    )


def _entries(kinds: list[str], forms: list[Form]) -> Iterator[Json]:
    """Yield the schemas of entries: those of any form, those of the forms, answers that say there is none."""
    text: Json = {"type": "string"}
    optional = {"anyOf": [text, {"type": "null"}]}
    further = {"target": optional, "data_json": optional}
    forms = [form for form in forms if form.properties is not None]
    free = [kind for kind in kinds if not any(kind in form.only for form in forms)]
    if free:
        yield _entry(free, {"text": text, **further})
    for form in forms:
        yield _entry(form.kinds, {"text": text, **further, **(form.properties or {})})
    if any("response" in form.only for form in forms):
        yield _entry(
            ["response"], {"text": text, "status": {"type": "string", "enum": ["failed", "refused"]}}
        )


def _entry(kinds: Iterable[str], properties: Json) -> Json:
    tags = {"type": "array", "items": {"type": "string"}}
    kind = {"type": "string", "enum": [*kinds]}
    return closed({"kind": kind, "payload": closed(properties), "tags": tags})


def bounded(properties: Mapping[str, Any], chars: int = BRIEF_CHARS, items: int = BRIEF_ITEMS) -> Json:
    """Return properties whose texts and lists end, so that a very small model ends too."""
    return {key: _with_ends(schema, chars, items) for key, schema in properties.items()}


def _with_ends(schema: Json, chars: int, items: int) -> Json:
    schema = {**schema}
    if schema.get("type") == "string" and "enum" not in schema:
        schema["maxLength"] = min(schema.get("maxLength", chars), max(chars, schema.get("minLength", 0)))
    if "anyOf" in schema:
        schema["anyOf"] = [_with_ends(branch, chars, items) for branch in schema["anyOf"]]
    if "items" in schema:
        schema |= {"items": _with_ends(schema["items"], chars, items), "maxItems": items}
    if "properties" in schema:
        schema["properties"] = bounded(schema["properties"], chars, items)
    return schema


def closed(properties: Json) -> Json:
    """Return the schema of an object that has these keys, and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def wire_call(name: str, schema: Json) -> Json:
    """Return the schema of a call of a tool in the contract, by the schema of its arguments."""
    tool = {"type": "string", "const": name}
    properties: Json = schema.get("properties", {})
    if schema.get("additionalProperties", True) is not False or not all(map(_is_plain, properties.values())):
        # Strict backends take no open object, so such arguments come as JSON text.
        return closed({"tool": tool, "args_json": {"type": "string"}})
    required = schema.get("required", [])
    args = {key: _wire_value(value, key in required) for key, value in properties.items()}
    return closed({"tool": tool, "args": closed(args)})


def _is_plain(schema: Any) -> bool:
    """Whether a value's schema may appear in a closed wire schema as it is."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind == "array":
        return _is_plain(schema.get("items", {}))
    return kind in ("string", "integer", "number", "boolean")


def _wire_value(schema: Json, is_required: bool) -> Json:
    kept: Json = {key: schema[key] for key in ("type", "description", "enum", "items") if key in schema}
    return kept if is_required else {"anyOf": [kept, {"type": "null"}]}
