"""Schemas that people write, as backends take them: closed, every property required."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from lemming.capabilities.output_schemas.closed_schemas import MAX_ENUM_VALUES, close_payload_schema, closing_blocker
from lemming.capabilities.output_schemas.payload_validation import repair_payload
from lemming.kernel.base.entry_kinds import MESSAGE_KINDS
from lemming.kernel.turn.reply_schemas import PayloadSchema, closed_object, limit_properties, reply_schema

ORDER = {
    "type": "object",
    "properties": {
        "lines": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/line"}},
        "urgent": {"type": "boolean"},
        "by": {"type": ["string", "null"]},
        "way": {"enum": ["post", "hand"]},
    },
    "required": ["lines"],
    "$defs": {
        "line": {
            "type": "object",
            "properties": {"what": {"type": "string"}, "count": {"type": "integer", "minimum": 1}},
            "required": ["what"],
            "additionalProperties": False,
        }
    },
}
FORM = PayloadSchema(("report", "response"), ("report", "response"), close_payload_schema(ORDER)["properties"])


def objects_in(schema: Any) -> list[dict[str, Any]]:
    if isinstance(schema, list):
        return [found for item in schema for found in objects_in(item)]
    if not isinstance(schema, dict):
        return []
    own = [schema] if schema.get("type") == "object" else []
    return [*own, *(found for item in schema.values() for found in objects_in(item))]


@pytest.mark.parametrize(
    "schema",
    [
        reply_schema(kinds=MESSAGE_KINDS, tools={}, payload_schemas=[FORM]),
        closed_object(limit_properties(FORM.properties or {})),
    ],
)
def test_every_object_is_closed_and_every_property_required(schema: dict[str, Any]) -> None:
    Draft202012Validator.check_schema(schema)
    for found in objects_in(schema):
        assert found["additionalProperties"] is False
        assert found["required"] == [*found["properties"]]


def test_what_the_wire_form_admits_satisfies_the_schema_it_stands_for() -> None:
    wire = {
        "text": "an order", "target": None, "data_json": None, "urgent": None, "by": None, "way": None,
        "lines": [{"what": "apples", "count": None}],
    }  # fmt: skip
    reply = {
        "outbox_entries": [{"kind": "report", "payload": wire, "tags": []}],
        "tool_calls": [], "memory_updates": [], "notes": "",
    }  # fmt: skip
    schema = reply_schema(kinds=MESSAGE_KINDS, tools={}, payload_schemas=[FORM])
    assert Draft202012Validator(schema).is_valid(reply)
    payload, wrong = repair_payload(wire, ORDER)
    assert wrong == []
    assert payload["lines"] == [{"what": "apples"}]
    free = {**reply, "outbox_entries": [{"kind": "report", "payload": {"text": "no order"}, "tags": []}]}
    assert not Draft202012Validator(schema).is_valid(free)
    refused = {"kind": "response", "payload": {"text": "no", "status": "refused"}, "tags": []}
    assert Draft202012Validator(schema).is_valid({**reply, "outbox_entries": [refused]})


def test_a_whole_number_between_close_limits_is_one_of_a_list() -> None:
    stars = {"properties": {"stars": {"type": "integer", "minimum": 1, "maximum": 5}}, "required": ["stars"]}
    assert close_payload_schema(stars)["properties"]["stars"]["enum"] == [1, 2, 3, 4, 5]
    stars["properties"]["stars"]["minimum"] = 5
    assert close_payload_schema(stars)["properties"]["stars"]["enum"] == [5]
    stars["properties"]["stars"]["maximum"] = 4 + MAX_ENUM_VALUES
    assert len(close_payload_schema(stars)["properties"]["stars"]["enum"]) == MAX_ENUM_VALUES
    stars["properties"]["stars"]["maximum"] += 1
    assert "enum" not in close_payload_schema(stars)["properties"]["stars"]


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "object"}, "does not define its keys"),
        ({"properties": {"a": {}}}, "/properties/a has no type"),
        ({"properties": {"a": {"oneOf": []}}}, "/properties/a/oneOf is not supported"),
        ({"properties": {"a": {"$ref": "#"}}}, "refers to itself"),
        ({"properties": {"a": {"$ref": "https://example.org/a.json"}}}, "refers outside the schema"),
        ({"type": "string"}, "it is not that of an object"),
    ],
)
def test_what_no_closed_schema_stands_for_says_why_and_stays_out(schema: dict[str, Any], why: str) -> None:
    assert why in closing_blocker(schema)
    form = PayloadSchema(("report",), ("report",), None)
    assert reply_schema(kinds=["report"], tools={}, payload_schemas=[form]) == reply_schema(kinds=["report"], tools={})
