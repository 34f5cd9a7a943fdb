"""JSON Schemas (draft 2020-12) of every file format, made from the types that read those files.

An editor that knows them completes and checks a resume as it is written; `lemming schema` prints them.
They are closed: a key the engine would only warn about is an error to an editor, which is where a typing
mistake is best seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lemming.capabilities.conditions import when
from lemming.facts.cases import Case
from lemming.kernel.agents import Agent
from lemming.kernel.base.kinds import MESSAGE_KINDS
from lemming.kernel.base.paths import AGENT_NAME_RULE, MEMORY_KEY_RULE
from lemming.kernel.files.documents import adapter
from lemming.kernel.files.fields import Count
from lemming.kernel.files.fields import schema_of as schema_of_type
from lemming.kernel.files.unknown import OTHERS
from lemming.kernel.journal.prompts import referring_schema
from lemming.kernel.journal.records import Record, TurnStarted, all_kinds
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.config import Org
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.org.resume import Allocation
from lemming.kernel.plugins.capabilities import class_of_format

Schema = dict[str, Any]
DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schema_of(name: str) -> Schema:
    """Return the schema of a format by its name; raise `KeyError` for a name that is not in `FORMATS`."""
    title, make = FORMATS[name]
    return {"$schema": DRAFT, "title": title, **make()}


def _outbox() -> Schema:
    schema: Schema = _closed(_plain_schema(OutboxEntry))
    schema["properties"]["created_at"]["format"] = "date-time"
    return schema


def _memory() -> Schema:
    return _object(
        {
            "key": {"type": "string", "description": f"The file's name. {MEMORY_KEY_RULE.capitalize()}."},
            "value": {"description": "Any JSON."},
            "timestamp": {
                "type": "string",
                "format": "date-time",
                "description": "When it was last written.",
            },
            "agent": {"type": "string", "description": "Whose memory it is."},
            "trust": {
                "type": "string",
                "description": "How far it is trusted, if less than what agents write.",
            },
        },
        required=["value"],
        is_open=True,
    )


def _store() -> Schema:
    schema = _memory()
    more = {
        "agent": {"type": "string", "description": "Who wrote it last."},
        "tick": {"type": "integer", "minimum": 0, "description": "In which tick that was."},
    }
    return {**schema, "properties": {**schema["properties"], **more}}


def _mark() -> Schema:
    text = {"type": "string"}
    source = _object({"is": text, "of": text}, required=["is", "of"], is_open=True)
    keys: dict[str, Schema] = {
        "file": {**text, "description": "The file; one that ends with / is all that is below that folder."},
        "trust": {
            **text,
            "description": "How far it is trusted: a word of `trust.order` in config/org.json.",
        },
        "tick": {"type": "integer", "minimum": 0, "description": "In which tick that was written."},
        "agent": {**text, "description": "Whose turn it was."},
        "from": {"type": "array", "items": source, "description": "What made it so."},
    }
    return _object(keys, required=["file", "trust", "tick"], is_open=True)


def _tick() -> Schema:
    number = {"type": "integer", "minimum": 0, "description": "The tick that runs next."}
    read_at = {"type": "string", "description": "The last tick's reading of the clock, where one is needed."}
    return _object({"current_tick": number, "read_at": read_at}, required=["current_tick"], is_open=True)


def _turn() -> Schema:
    """The contract between engine and model, as the architecture guide prints it."""
    entry = _object(
        {
            "kind": {"enum": list(MESSAGE_KINDS)},
            "payload": {"type": "object", "description": 'Free form; "text" is what others read first.'},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        required=["kind", "payload"],
    )
    call = _object({"tool": {"type": "string"}, "args": {"type": "object"}}, required=["tool", "args"])
    update = _object({"key": {"type": "string"}, "value": {}}, required=["key", "value"])
    return _object(
        {
            "outbox_entries": {"type": "array", "items": entry},
            "tool_calls": {"type": "array", "items": call},
            "memory_updates": {"type": "array", "items": update},
            "notes": {"type": "string", "description": "For the logs only."},
        },
        required=[],
    )


def _journal() -> Schema:
    records = [_record(kind, kind.json_schema()) for kind in all_kinds().values()]
    records.append(_record(TurnStarted, referring_schema()))
    return {"description": "One line of a journal.", "oneOf": records}


def _shown() -> Schema:
    from lemming.facts.json_output import shown  # with it come the capabilities that have something to show

    return shown()


def _record(kind: type[Record], fields: Schema) -> Schema:
    check = {"type": "string", "pattern": "^[0-9a-f]{16}$", "description": "Chained to the line before."}
    about = str(kind.__doc__).partition("\n")[0]
    keys = {
        "type": {"const": kind.kind},
        "epoch": schema_of_type(Count),
        **fields["properties"],
        "check": check,
    }
    required = ["type", "epoch", *fields["required"], "check"]
    return {"description": about, **_object(keys, required=required, is_open=True)}


def _plan() -> Schema:
    """Return the schema of a plan, whose conditions are an object of their own form."""
    schema = _of_a_file(class_of_format("plan"))
    schema["$defs"]["Route"]["properties"]["when"] = _CONDITION
    return _with_conditions(schema)


def _with_conditions(schema: Schema) -> Schema:
    """Return a schema in whose definitions `when` is a condition, or null."""
    for definition in schema["$defs"].values():
        own = definition.get("properties", {}).get("when")
        if own and own != _CONDITION:
            definition["properties"]["when"] = {**own, "anyOf": [_CONDITION, {"type": "null"}]}
    schema["$defs"]["When"] = when.schema()
    return schema


_CONDITION = {"$ref": "#/$defs/When"}


FORMATS: dict[str, tuple[str, Callable[[], Schema]]] = {
    "resume": ("agents/<name>/resume.json", lambda: _of_a_file(Agent)),
    "outbox": ("agents/<name>/outbox/<tick>_<id>.json", _outbox),
    "memory": ("agents/<name>/memory/<key>.json", _memory),
    "store": ("shared/store/<key>.json", _store),
    "mark": ("trust/<path of a file>.json", _mark),
    "models": ("config/models.json", lambda: _of_a_table(ModelEntry, "What a model key stands for.")),
    "org": ("config/org.json", lambda: _of_a_file(Org)),
    "credits": (
        "config/credits.json",
        lambda: _of_a_table(Allocation, f"An agent's allocation; the key is its name: {AGENT_NAME_RULE}."),
    ),
    "calendar": ("config/calendar.json", lambda: _of_a_file(class_of_format("calendar"))),
    "mcp": ("config/mcp.json", lambda: _of_a_file(class_of_format("mcp"))),
    "mcp_lock": ("config/mcp.lock.json", lambda: _of_a_file(class_of_format("mcp_lock"))),
    "tick": ("tick.json", _tick),
    "plan": ("agents/<name>/plan.json", _plan),
    "eval": ("evals/<name>/case.json", lambda: _with_conditions(_of_a_file(Case))),
    "turn": ("A model's reply", _turn),
    "journal": ("logs/ticks/<tick>.jsonl", _journal),
    "shown": ("What a command that looks prints with --json", _shown),
}
"""The formats by name: the file each is for, and what makes its schema."""


# --- the pieces --------------------------------------------------------------------------------


def _of_a_file(kind: Any) -> Schema:
    """Return the schema of a file that people edit; it may name its schema itself."""
    others = {"patternProperties": {f"^{OTHERS}": {"description": "For other programs; LeMMing keeps it."}}}
    return {**_with_schema_key(_closed(_plain_schema(kind))), **others}


def _of_a_table(kind: Any, about: str) -> Schema:
    definitions = {"line": {**_closed(_plain_schema(kind)), "description": about}}
    inner = definitions["line"].pop("$defs", {})
    schema: Schema = {"type": "object", "additionalProperties": {"$ref": "#/$defs/line"}, "properties": {}}
    return {**_with_schema_key(schema), "$defs": {**definitions, **inner}}


def _plain_schema(kind: Any) -> Schema:
    schema: Schema = adapter(kind).json_schema()
    schema.pop("title", None)
    return schema


def _with_schema_key(schema: Schema) -> Schema:
    about = "Where an editor finds this schema."
    properties = {"$schema": {"type": "string", "description": about}, **schema["properties"]}
    return {**schema, "properties": properties}


def _closed(schema: Any) -> Any:
    """Return the schema with every object that has named properties closed to others, and without titles."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {
        key: _closed(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))
    }
    if "properties" in closed and "type" in closed:
        closed.setdefault("additionalProperties", False)
    return closed


def _object(properties: dict[str, Schema], *, required: list[str], is_open: bool = False) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": is_open,
    }
