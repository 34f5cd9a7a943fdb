"""JSON schemas of replies, for backends with constrained output, and the actions of a turn as models see them. Pure.

Hosted structured output takes only closed objects with every property required; an optional property is null
instead of absent. The replies are defined in `lemming.kernel.base.contract`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Any, NamedTuple

from lemming.kernel.base.contract import MAX_ENTRIES
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.base.untrusted_quoting import escape_markers

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
    keys = ("type", "description", "enum", "items")
    values = {name: {key: value[key] for key in keys if key in value} for name, value in properties.items()}
    args = {name: values[name] if name in required else {"anyOf": [values[name], {"type": "null"}]} for name in values}
    return closed_object({"tool": tool, "args": closed_object(args)})


def _is_plain(schema: Any) -> bool:
    """Return True if a value's schema may appear unchanged in a closed wire schema."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind == "array":
        return _is_plain(schema.get("items", {}))
    return kind in ("string", "integer", "number", "boolean")


ABOUT_ARGUMENT_CHARS = 80
"""Longer descriptions of an argument are left to the tool's own."""
NESTED = "arguments"
_MARKS = frozenset('|()"\\')
_COMPOSED = frozenset(("allOf", "anyOf", "oneOf", "patternProperties"))


class Action(NamedTuple):
    """An action of a reply. `arguments`: JSON Schema of the arguments object."""

    name: str
    about: str
    arguments: Json

    @property
    def properties(self) -> Mapping[str, Json]:
        """Schemas of the arguments by name, including arguments that are only listed as required."""
        properties: Mapping[str, Json] = self.arguments.get("properties", {})
        unlisted = [name for name in self.required if name not in properties]
        return {**properties, **{name: {} for name in unlisted}} if unlisted else properties

    @property
    def required(self) -> Iterable[str]:
        """Names of the required arguments."""
        required: Iterable[str] = self.arguments.get("required", ())
        return required

    @property
    def is_nested(self) -> bool:
        """True if the arguments need an object of their own: an argument is named `do`, or names are unlisted."""
        arguments, properties = self.arguments, self.properties
        if "do" in properties or "$defs" in arguments or "$ref" in to_line(arguments):
            return True
        return not properties and bool(arguments.get("additionalProperties") or arguments.keys() & _COMPOSED)


def describe_action(action: Action) -> str:
    """Return the line that describes an action to a model.

    >>> describe_action(Action("send", "Send a message.", {"properties": {"to": {"enum": ["ada", "bob"]}}}))
    'send(to? (ada|bob)): Send a message.'
    """
    about = escape_markers(" ".join(action.about.split()))
    if action.is_nested:
        return f"{action.name}({NESTED}): {about} {NESTED} is {escape_markers(to_line(action.arguments))}"
    required = {*action.required}
    arguments = [_describe(name, schema, name in required) for name, schema in action.properties.items()]
    return f"{action.name}({', '.join(arguments)}): {about}"


def describe_fields(properties: Mapping[str, Json]) -> str:
    """Return the names of a form's fields, with their values where enumerable."""
    return ", ".join(_describe(name, schema, True) for name, schema in properties.items())


def _describe(name: str, schema: object, is_required: bool) -> str:
    definition = schema if isinstance(schema, dict) else {}
    signature = f"{_quote_word(name)}{'' if is_required else '?'}"
    if values := definition.get("enum"):
        return f"{signature} ({'|'.join(map(_quote_word, values))})"
    if definition.get("type") == "boolean":
        return f"{signature} (true|false)"
    about = definition.get("description")
    if isinstance(about, str) and about and len(about) <= ABOUT_ARGUMENT_CHARS:
        return f"{signature} ({escape_markers(' '.join(about.split())).rstrip('.')})"
    if definition.get("type") in ("array", "object"):
        return f"{signature} ({escape_markers(to_line({key: definition[key] for key in definition if key != 'description'}))})"
    return signature


def _quote_word(value: object) -> str:
    """Return a name or value within a line. An unsafe text becomes JSON, because askers choose the values."""
    if isinstance(value, str) and value.isprintable() and _MARKS.isdisjoint(value):
        return value
    return escape_markers(to_line(value))


def action_schema(action: Action) -> Json:
    """Return the JSON Schema of an action as one object, for backends with constrained output."""
    const = {"do": {"type": "string", "const": action.name}}
    if action.is_nested:
        return closed_object(
            {**const, NESTED: action.arguments if "$defs" not in action.arguments else {"type": "object"}}
        )
    required = ["do", *action.required]
    return {**closed_object({**const, **action.properties}), "required": required}


def actions_schema(actions: Iterable[Action], max_actions: int = 1) -> Json:
    """Return the JSON Schema of a reply with one action, or a list of up to `max_actions`."""
    schemas = [action_schema(action) for action in actions]
    return join_actions(schemas, max_actions)


def list_actions(schema: Mapping[str, Any]) -> list[Json]:
    """Return the schemas of the actions that a reply's schema allows; none for a form with fields."""
    return [branch for branch in schema.get("anyOf", [schema]) if "const" in branch.get("properties", {}).get("do", ())]


def max_actions(schema: Mapping[str, Any]) -> int:
    """Return the maximum number of actions in a reply by the schema."""
    lists = (branch for branch in schema.get("anyOf", ()) if "items" in branch)
    return next((branch["maxItems"] for branch in lists), 1)


def drop_actions(schema: Json, dropped: Iterable[str]) -> Json:
    """Return the schema of a reply without some actions; unchanged if no action would be left."""
    remaining = [action for action in list_actions(schema) if action["properties"]["do"]["const"] not in dropped]
    return join_actions(remaining, max_actions(schema)) if remaining else schema


def join_actions(schemas: Sequence[Json], max_items: int) -> Json:
    """Return the schema of a reply with one of these actions, or a list of up to `max_items`."""
    single = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    several = {"type": "array", "items": single, "minItems": 2, "maxItems": max_items}
    return single if max_items <= 1 else {"anyOf": [*schemas, several]}


def sample_action(action: Action) -> Json:
    """Return an action as a reply would contain it, with values of the right types."""
    values = {name: sample_value(name, action.properties[name]) for name in action.required}
    return {"do": action.name, **({NESTED: values} if action.is_nested else values)}


def sample_value(name: str, schema: object) -> Any:
    """Return a sample value of a schema. A text names the value to insert."""
    definition = schema if isinstance(schema, dict) else {}
    if definition.get("enum"):
        return definition["enum"][0]
    if "const" in definition:
        return definition["const"]
    for branch in definition.get("anyOf", ()):
        return sample_value(name, branch)
    match definition.get("type"):
        case "boolean":
            return True
        case "integer" | "number":
            return definition.get("minimum", 1)
        case "array":
            return [sample_value(name, definition.get("items"))] if definition.get("minItems") else []
        case "object":
            properties = definition.get("properties", {})
            return {key: sample_value(key, properties.get(key)) for key in definition.get("required", ())}
        case "null":
            return None
    # A memory's key has no space in it, and whatever stands here is copied.
    return "name" if name == "key" else f"your {name}"


NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
NAME_CHARS = 64
"""Characters and length that backends accept in tool names."""


def make_native_names(names: Iterable[str], used_names: Collection[str] = ()) -> dict[str, str]:
    """Return backend names by tool name: only letters, digits, _ and -, all different.

    `used_names`: names already in use.

    >>> make_native_names(["mcp.a.b__c", "mcp.a.b.c", "file_list"])
    {'file_list': 'file_list', 'mcp.a.b.c': 'mcp__a__b__c', 'mcp.a.b__c': 'mcp__a__b__c_2'}
    >>> make_native_names(["mcp.a.b"], used_names=["mcp__a__b"])
    {'mcp.a.b': 'mcp__a__b_2'}
    """
    sanitized = {name: NOT_IN_NAMES.sub("__", name)[:NAME_CHARS] for name in names}
    native_names: dict[str, str] = {}
    all_used = {*used_names}
    for name in sorted(
        sanitized, key=lambda name: (sanitized[name] != name, name)
    ):  # names that stay unchanged come first
        ends = (f"_{number}" for number in count(2))
        numbered = (f"{sanitized[name][: NAME_CHARS - len(end)]}{end}" for end in ends)
        native_names[name] = next(
            candidate for candidate in chain([sanitized[name]], numbered) if candidate not in all_used
        )
        all_used.add(native_names[name])
    return native_names
