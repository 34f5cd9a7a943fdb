"""JSON Schemas (draft 2020-12) of every file format, generated from the types that read the files.

An editor with these schemas completes and checks a resume during typing; `lemming export schema` prints the schemas.
The schemas are closed: a key that only causes a warning in the engine is an error in an editor, the best
place to catch a typing mistake.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.entry_kinds import MESSAGE_KINDS
from lemming.kernel.base.jsontext import dump_compact, parse
from lemming.kernel.files.field_types import Count
from lemming.kernel.files.field_types import type_schema as schema_of_type
from lemming.kernel.files.json_documents import adapter
from lemming.kernel.files.unknown_keys import FOREIGN_PREFIX
from lemming.kernel.journal.journal_records import RECORDS, Record, TurnStarted
from lemming.kernel.journal.prompt_store import reference_schema
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.org.resume import Allocation
from lemming.kernel.plugins.capability_loader import load_provided, missing_reason, plugin_capabilities
from lemming.kernel.plugins.capability_table import provided
from lemming.libraries.conditions import predicates
from lemming.queries.case_format import Case

Schema = dict[str, Any]
DRAFT = "https://json-schema.org/draft/2020-12/schema"


def get_schema(name: str) -> Schema:
    """Return the schema of a format by name; raise `KeyError` for a name missing from `FORMATS`."""
    title, make = FORMATS[name]
    return {"$schema": DRAFT, "title": title, **make()}


def _outbox_schema() -> Schema:
    schema: Schema = _close_schema(_plain_schema(OutboxEntry))
    schema["properties"]["created_at"]["format"] = "date-time"
    return schema


def _memory_schema() -> Schema:
    return _object_schema(
        {
            "key": {"type": "string", "description": f"The file's name. {paths.MEMORY_KEY_RULE.capitalize()}."},
            "value": {"description": "Any JSON."},
            "timestamp": {"type": "string", "format": "date-time", "description": "When it was last written."},
            "agent": {"type": "string", "description": "Whose memory it is."},
            "trust": {"type": "string", "description": "How far it is trusted, if less than what agents write."},
        },
        required=["value"],
        is_open=True,
    )


def _store_schema() -> Schema:
    schema = _memory_schema()
    schema["properties"]["agent"] = {"type": "string", "description": "Who wrote it last."}
    schema["properties"]["tick"] = {"type": "integer", "minimum": 0, "description": "In which tick that was."}
    return schema


def _trust_label_schema() -> Schema:
    text = {"type": "string"}
    source = _object_schema({"is": text, "of": text}, required=["is", "of"], is_open=True)
    keys: dict[str, Schema] = {
        "file": {**text, "description": "The file; one that ends with / is all that is below that folder."},
        "trust": {**text, "description": "How far it is trusted: a word of `trust.order` in config/org.json."},
        "tick": {"type": "integer", "minimum": 0, "description": "In which tick that was written."},
        "agent": {**text, "description": "Whose turn it was."},
        "from": {"type": "array", "items": source, "description": "What made it so."},
    }
    return _object_schema(keys, required=["file", "trust", "tick"], is_open=True)


def _tick_schema() -> Schema:
    number = {"type": "integer", "minimum": 0, "description": "The tick that runs next."}
    read_at = {"type": "string", "description": "The last tick's reading of the clock, where one is needed."}
    return _object_schema({"current_tick": number, "read_at": read_at}, required=["current_tick"], is_open=True)


def _reply_schema() -> Schema:
    """Return the schema of a model's reply: the contract printed in the architecture guide."""
    entry = _object_schema(
        {
            "kind": {"enum": list(MESSAGE_KINDS)},
            "payload": {"type": "object", "description": 'Free form; "text" is what others read first.'},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        required=["kind", "payload"],
    )
    call = _object_schema({"tool": {"type": "string"}, "args": {"type": "object"}}, required=["tool", "args"])
    update = _object_schema({"key": {"type": "string"}, "value": {}}, required=["key", "value"])
    return _object_schema(
        {
            "outbox_entries": {"type": "array", "items": entry},
            "tool_calls": {"type": "array", "items": call},
            "memory_updates": {"type": "array", "items": update},
            "notes": {"type": "string", "description": "For the logs only."},
        },
        required=[],
    )


def _journal_schema() -> Schema:
    records = [_record_schema(kind, kind.json_schema()) for kind in record_classes().values()]
    records.append(_record_schema(TurnStarted, reference_schema()))
    return {"description": "One line of a journal.", "oneOf": records}


def _output_schema() -> Schema:
    from lemming.queries.output_schemas import list_output_schemas  # with it come the capabilities that show something

    return {"description": "One line of --json.", "oneOf": [schema for _, schema in list_output_schemas()]}


def _record_schema(kind: type[Record], fields: Schema) -> Schema:
    check = {"type": "string", "pattern": "^[0-9a-f]{16}$", "description": "Chained to the line before."}
    about = str(kind.__doc__).partition("\n")[0]
    keys = {"type": {"const": kind.kind}, "epoch": schema_of_type(Count), **fields["properties"], "check": check}
    required = ["type", "epoch", *fields["required"], "check"]
    return {"description": about, **_object_schema(keys, required=required, is_open=True)}


def _plan_schema() -> Schema:
    """Return the schema of a plan, with the condition schema in routes."""
    schema = _file_schema(load_provided("formats", "plan"))
    schema["$defs"]["Route"]["properties"]["when"] = _CONDITION
    return _add_conditions(schema)


def _add_conditions(schema: Schema) -> Schema:
    """Return a schema whose `when` definitions accept a condition or null."""
    for definition in schema["$defs"].values():
        when_schema = definition.get("properties", {}).get("when")
        if when_schema and when_schema != _CONDITION:
            definition["properties"]["when"] = {**when_schema, "anyOf": [_CONDITION, {"type": "null"}]}
    schema["$defs"]["When"] = predicates.condition_schema()
    return schema


_CONDITION = {"$ref": "#/$defs/When"}


FORMATS: dict[str, tuple[str, Callable[[], Schema]]] = {
    "resume": ("agents/<name>/resume.json", lambda: _add_plugin_settings(_file_schema(Agent), "agent_settings_type")),
    "outbox": ("agents/<name>/outbox/<tick>_<id>.json", _outbox_schema),
    "memory": ("agents/<name>/memory/<key>.json", _memory_schema),
    "store": ("shared/store/<key>.json", _store_schema),
    "mark": ("trust/<path of a file>.json", _trust_label_schema),
    "models": ("config/models.json", lambda: _table_schema(ModelEntry, "What a model key stands for.")),
    "org": ("config/org.json", lambda: _add_plugin_settings(_file_schema(OrgSettings), "org_settings_type")),
    "credits": (
        "config/credits.json",
        lambda: _table_schema(Allocation, f"An agent's allocation; the key is its name: {paths.AGENT_NAME_RULE}."),
    ),
    "calendar": ("config/calendar.json", lambda: _file_schema(load_provided("formats", "calendar"))),
    "mcp": ("config/mcp.json", lambda: _file_schema(load_provided("formats", "mcp"))),
    "mcp_lock": ("config/mcp.lock.json", lambda: _file_schema(load_provided("formats", "mcp_lock"))),
    "tick": ("tick.json", _tick_schema),
    "plan": ("agents/<name>/plan.json", _plan_schema),
    "eval": ("evals/<name>/case.json", lambda: _add_conditions(_file_schema(Case))),
    "until": ("`until` of a request", lambda: _close_schema(_plain_schema(load_provided("formats", "until")))),
    "turn": ("A model's reply", _reply_schema),
    "journal": ("logs/ticks/<tick>.jsonl", _journal_schema),
    "shown": ("What a command that looks prints with --json", _output_schema),
}
"""The formats by name: the file, and the function that builds the schema."""


def _file_schema(kind: Any) -> Schema:
    """Return the schema of a file that people edit; the file may name its own schema."""
    foreign_keys = {f"^{FOREIGN_PREFIX}": {"description": "For other programs; LeMMing keeps it."}}
    return {**_add_schema_key(_close_schema(_plain_schema(kind))), "patternProperties": foreign_keys}


def _add_plugin_settings(schema: Schema, attribute: str) -> Schema:
    """Return a schema with the settings of the capabilities of installed packages, each from its dataclass."""
    blocks, definitions = dict[str, Schema](), dict[str, Schema]()
    for name, capability in sorted(plugin_capabilities(()).items()):
        text = dump_compact(_close_schema(_plain_schema(getattr(capability, attribute)))).decode()
        block = parse(text.replace('"#/$defs/', f'"#/$defs/{name}.').encode())
        definitions |= {f"{name}.{key}": value for key, value in block.pop("$defs", {}).items()}
        blocks[name] = block
    if not blocks:
        return schema
    properties = schema["properties"]
    properties = {**properties, "capabilities": {**properties["capabilities"], "properties": blocks}}
    return {**schema, "properties": properties, "$defs": {**schema.get("$defs", {}), **definitions}}


def _table_schema(kind: Any, about: str) -> Schema:
    line = {**_close_schema(_plain_schema(kind)), "description": about}
    definitions = {"line": line, **line.pop("$defs", {})}
    schema: Schema = {"type": "object", "additionalProperties": {"$ref": "#/$defs/line"}, "properties": {}}
    return {**_add_schema_key(schema), "$defs": definitions}


def _plain_schema(kind: Any) -> Schema:
    schema: Schema = adapter(kind).json_schema()
    schema.pop("title", None)
    return schema


def _add_schema_key(schema: Schema) -> Schema:
    about = "Where an editor finds this schema."
    properties = {"$schema": {"type": "string", "description": about}, **schema["properties"]}
    return {**schema, "properties": properties}


def _close_schema(schema: Any) -> Any:
    """Return the schema without titles, with every object of named properties closed."""
    if isinstance(schema, list):
        return [_close_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {
        key: _close_schema(value) for key, value in schema.items() if not (key == "title" and isinstance(value, str))
    }
    if "properties" in closed and "type" in closed:
        closed.setdefault("additionalProperties", False)
    return closed


def _object_schema(properties: dict[str, Schema], *, required: list[str], is_open: bool = False) -> Schema:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": is_open}


def record_classes() -> dict[str, type[Record]]:
    """Return all record classes by the `type` of their lines, including the available capabilities' classes."""
    capability_records = {
        name: load_provided("records", name)
        for name, (capability_name, _) in provided("records").items()
        if not missing_reason(capability_name)
    }
    return RECORDS | capability_records
