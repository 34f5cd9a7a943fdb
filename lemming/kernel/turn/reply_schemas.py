"""JSON schemas of replies, for backends with constrained output. Pure.

Hosted structured output takes only closed objects with every property required; an optional property is null
instead of absent. The replies are defined in `lemming.kernel.base.contract`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from lemming.kernel.base.contract import MAX_ENTRIES

Json = dict[str, Any]
BRIEF_CHARS = 160
BRIEF_ITEMS = 8


class PayloadSchema(NamedTuple):
    """JSON schema of the payloads of some entry kinds. Kinds in `only` always have this schema.

    `properties`: properties of the closed payload object, all required. None if no closed object expresses
    the schema.
    """

    kinds: tuple[str, ...]
    only: tuple[str, ...]
    properties: Json | None


def reply_schema(
    *,
    kinds: Iterable[str],
    tools: Mapping[str, Json],
    max_entries: int = MAX_ENTRIES,
    payload_schemas: Iterable[PayloadSchema] = (),
) -> Json:
    """Return the wire schema of a reply, narrowed to one agent's permissions.

    Every object is closed and every property required, as hosted structured output demands; `tools` maps the
    names of allowed tools to the JSON Schema of their arguments.
    """
    text: Json = {"type": "string"}
    entries = [*_entry_schemas([*kinds], [*payload_schemas])]
    entry = entries[0] if len(entries) == 1 else {"anyOf": entries}
    call = {"anyOf": [wire_call(name, schema) for name, schema in tools.items()]}
    update = closed_object({"key": text, "value_json": text})
    return closed_object(
        {
            "outbox_entries": {"type": "array", "items": entry, "maxItems": max_entries},
            "tool_calls": {"type": "array", "items": call}
            if tools
            else {"type": "array", "items": text, "maxItems": 0},
            "memory_updates": {"type": "array", "items": update},
            "notes": text,
        }
    )


def _entry_schemas(kinds: list[str], payload_schemas: list[PayloadSchema]) -> Iterator[Json]:
    """Yield the schemas of entries: free entries, entries with payload schemas, and refusals to answer."""
    text: Json = {"type": "string"}
    optional = {"anyOf": [text, {"type": "null"}]}
    common = {"target": optional, "data_json": optional}
    payload_schemas = [payload_schema for payload_schema in payload_schemas if payload_schema.properties is not None]
    free_kinds = [kind for kind in kinds if not any(kind in payload_schema.only for payload_schema in payload_schemas)]
    if free_kinds:
        yield _entry_schema(free_kinds, {"text": text, **common})
    for payload_schema in payload_schemas:
        yield _entry_schema(payload_schema.kinds, {"text": text, **common, **(payload_schema.properties or {})})
    if any("response" in payload_schema.only for payload_schema in payload_schemas):
        yield _entry_schema(["response"], {"text": text, "status": {"type": "string", "enum": ["failed", "refused"]}})


def _entry_schema(kinds: Iterable[str], properties: Json) -> Json:
    tags = {"type": "array", "items": {"type": "string"}}
    kind = {"type": "string", "enum": [*kinds]}
    return closed_object({"kind": kind, "payload": closed_object(properties), "tags": tags})


def limit_properties(properties: Mapping[str, Any], chars: int = BRIEF_CHARS, items: int = BRIEF_ITEMS) -> Json:
    """Return properties with limits on texts and lists, so that a very small model finishes."""
    return {key: _limit_schema(schema, chars, items) for key, schema in properties.items()}


def _limit_schema(schema: Json, chars: int, items: int) -> Json:
    schema = {**schema}
    if schema.get("type") == "string" and "enum" not in schema:
        schema["maxLength"] = min(schema.get("maxLength", chars), max(chars, schema.get("minLength", 0)))
    if "anyOf" in schema:
        schema["anyOf"] = [_limit_schema(branch, chars, items) for branch in schema["anyOf"]]
    if "items" in schema:
        schema |= {"items": _limit_schema(schema["items"], chars, items), "maxItems": items}
    if "properties" in schema:
        schema["properties"] = limit_properties(schema["properties"], chars, items)
    return schema


def closed_object(properties: Json) -> Json:
    """Return the schema of an object with exactly these keys."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def wire_call(name: str, schema: Json) -> Json:
    """Return the schema of a tool call in the contract from the schema of the tool's arguments."""
    tool = {"type": "string", "const": name}
    properties: Json = schema.get("properties", {})
    if schema.get("additionalProperties", True) is not False or not all(map(_is_plain, properties.values())):
        # Strict backends take no open object, so such arguments come as JSON text.
        return closed_object({"tool": tool, "args_json": {"type": "string"}})
    required = schema.get("required", [])
    args = {key: _wire_value(value, key in required) for key, value in properties.items()}
    return closed_object({"tool": tool, "args": closed_object(args)})


def _is_plain(schema: Any) -> bool:
    """Return True if a value's schema may appear unchanged in a closed wire schema."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind == "array":
        return _is_plain(schema.get("items", {}))
    return kind in ("string", "integer", "number", "boolean")


def _wire_value(schema: Json, is_required: bool) -> Json:
    wire_schema: Json = {key: schema[key] for key in ("type", "description", "enum", "items") if key in schema}
    return wire_schema if is_required else {"anyOf": [wire_schema, {"type": "null"}]}
