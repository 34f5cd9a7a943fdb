"""Actions of a turn as a model sees them: signatures, schemas and tools of a backend. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from lemming.kernel.base.jsontext import to_line
from lemming.kernel.base.untrusted_quoting import escape_markers
from lemming.kernel.turn.reply_schemas import closed_object

Json = dict[str, Any]
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
        """True if the arguments need an object of their own: an argument is named `do`, or the names are
        unlisted.
        """
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
