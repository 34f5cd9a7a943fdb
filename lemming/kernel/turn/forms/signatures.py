"""The actions of a turn, as a model is told of them: signatures, schemas, tools of a backend. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from lemming.kernel.base.jsontext import to_line
from lemming.kernel.base.quoting import quoted
from lemming.kernel.turn.reply_schemas import closed

Json = dict[str, Any]
ABOUT_ARGUMENT_CHARS = 80
"""Longer descriptions of an argument are left to the tool's own."""
NESTED = "arguments"
_MARKS = frozenset('|()"\\')
_COMPOSED = frozenset(("allOf", "anyOf", "oneOf", "patternProperties"))


class Action(NamedTuple):
    """Something that a reply can do. `arguments`: the JSON Schema of the object of its arguments."""

    name: str
    about: str
    arguments: Json

    @property
    def properties(self) -> Mapping[str, Json]:
        """The schemas of its arguments, by name; also of those that are only named as required."""
        properties: Mapping[str, Json] = self.arguments.get("properties", {})
        unlisted = [name for name in self.required if name not in properties]
        return {**properties, **{name: {} for name in unlisted}} if unlisted else properties

    @property
    def required(self) -> Iterable[str]:
        """The names of the arguments that it needs."""
        required: Iterable[str] = self.arguments.get("required", ())
        return required

    @property
    def is_nested(self) -> bool:
        """Whether its arguments stand in an object of their own: they have a `do`, or are not listed."""
        arguments, properties = self.arguments, self.properties
        if "do" in properties or "$defs" in arguments or "$ref" in to_line(arguments):
            return True
        return not properties and bool(arguments.get("additionalProperties") or arguments.keys() & _COMPOSED)


def describe_action(action: Action) -> str:
    """Return the line that tells a model of an action.

    >>> describe_action(Action("send", "Send a message.", {"properties": {"to": {"enum": ["ada", "bob"]}}}))
    'send(to? (ada|bob)): Send a message.'
    """
    about = quoted(" ".join(action.about.split()))
    if action.is_nested:
        return f"{action.name}({NESTED}): {about} {NESTED} is {quoted(to_line(action.arguments))}"
    required = {*action.required}
    arguments = [_describe(name, schema, name in required) for name, schema in action.properties.items()]
    return f"{action.name}({', '.join(arguments)}): {about}"


def describe_fields(properties: Mapping[str, Json]) -> str:
    """Return the names of the fields of a form, each with its values where they can be listed."""
    return ", ".join(_describe(name, schema, True) for name, schema in properties.items())


def _describe(name: str, schema: object, is_required: bool) -> str:
    known = schema if isinstance(schema, dict) else {}
    told = f"{_word(name)}{'' if is_required else '?'}"
    if values := known.get("enum"):
        return f"{told} ({'|'.join(map(_word, values))})"
    if known.get("type") == "boolean":
        return f"{told} (true|false)"
    about = known.get("description")
    if isinstance(about, str) and about and len(about) <= ABOUT_ARGUMENT_CHARS:
        return f"{told} ({quoted(' '.join(about.split())).rstrip('.')})"
    if known.get("type") in ("array", "object"):
        return f"{told} ({quoted(to_line({key: known[key] for key in known if key != 'description'}))})"
    return told


def _word(value: object) -> str:
    """Return a name or a value in a line; one that could leave its place, as JSON: askers choose them."""
    if isinstance(value, str) and value.isprintable() and _MARKS.isdisjoint(value):
        return value
    return quoted(to_line(value))


def schema_of_action(action: Action) -> Json:
    """Return the JSON Schema of an action as one object, for a backend that constrains its replies."""
    const = {"do": {"type": "string", "const": action.name}}
    if action.is_nested:
        return closed(
            {**const, NESTED: action.arguments if "$defs" not in action.arguments else {"type": "object"}}
        )
    required = ["do", *action.required]
    return {**closed({**const, **action.properties}), "required": required}


def schema_of_actions(actions: Iterable[Action], most: int = 1) -> Json:
    """Return the JSON Schema of a reply of one action, or of a list of up to `most`."""
    schemas = [schema_of_action(action) for action in actions]
    return join_actions(schemas, most)


def list_actions(schema: Mapping[str, Any]) -> list[Json]:
    """Return the schemas of the actions that a reply may take by its schema; none for a form's fields."""
    return [it for it in schema.get("anyOf", [schema]) if "const" in it.get("properties", {}).get("do", ())]


def most_actions(schema: Mapping[str, Any]) -> int:
    """Return how many actions a reply may have by its schema."""
    lists = (it for it in schema.get("anyOf", ()) if "items" in it)
    return next((it["maxItems"] for it in lists), 1)


def drop_actions(schema: Json, dropped: Iterable[str]) -> Json:
    """Return the schema of a reply without some actions; the same where nothing would be left."""
    kept = [one for one in list_actions(schema) if one["properties"]["do"]["const"] not in dropped]
    return join_actions(kept, most_actions(schema)) if kept else schema


def join_actions(schemas: Sequence[Json], most: int) -> Json:
    """Return the schema of a reply of one of these actions, or of a list of up to `most`."""
    one = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    several = {"type": "array", "items": one, "minItems": 2, "maxItems": most}
    return one if most <= 1 else {"anyOf": [*schemas, several]}


def sample_action(action: Action) -> Json:
    """Return an action as a reply would hold it, with values of the right types."""
    values = {name: sample_value(name, action.properties[name]) for name in action.required}
    return {"do": action.name, **({NESTED: values} if action.is_nested else values)}


def sample_value(name: str, schema: object) -> Any:
    """Return a value of a schema; text says what it is to be replaced by."""
    known = schema if isinstance(schema, dict) else {}
    if known.get("enum"):
        return known["enum"][0]
    if "const" in known:
        return known["const"]
    for branch in known.get("anyOf", ()):
        return sample_value(name, branch)
    match known.get("type"):
        case "boolean":
            return True
        case "integer" | "number":
            return known.get("minimum", 1)
        case "array":
            return [sample_value(name, known.get("items"))] if known.get("minItems") else []
        case "object":
            properties = known.get("properties", {})
            return {key: sample_value(key, properties.get(key)) for key in known.get("required", ())}
        case "null":
            return None
    # A memory's key has no space in it, and whatever stands here is copied.
    return "name" if name == "key" else f"your {name}"


def tool_of_action(action: Action) -> Json:
    """Return an action as a backend is told of its tools."""
    return {"name": action.name, "description": action.about, "parameters": action.arguments}
