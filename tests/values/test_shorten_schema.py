"""Schemas of tools as prompts have them: shorter, and no call that fits them is refused for it."""

from __future__ import annotations

from typing import Any

import pytest

from lemming.kernel.base.json_schema.schema_violations import describe_violations, shorten_schema
from lemming.kernel.base.jsontext import dump_compact

TEXT_OR_NULL = {"anyOf": [{"type": "string"}, {"type": "null"}]}
ISSUE = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "create_issueArguments",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "title": {"type": "string", "title": "Title", "description": "What it is about."},
        "body": {**TEXT_OR_NULL, "default": None, "title": "Body", "description": ""},
        "labels": {"type": ["array", "null"], "items": {"type": "string", "title": "L"}, "default": None},
        "owner": {"$ref": "#/$defs/Owner", "title": "Owner"},
        "kind": {"enum": ["title", "default"], "default": "title"},
    },
    "required": ["title", "owner"],
    "$defs": {"Owner": {"title": "Owner", "type": "object", "properties": {"name": {"title": "Name"}}}},
}


def test_titles_and_dialects_go_and_properties_of_such_names_stay() -> None:
    short = shorten_schema(ISSUE)
    assert short == {
        "type": "object",
        "properties": {
            "title": {"type": "string", "description": "What it is about."},
            "body": {"type": "string"},
            "labels": {"type": "array", "items": {"type": "string"}},
            "owner": {"$ref": "#/$defs/Owner"},
            "kind": {"enum": ["title", "default"], "default": "title"},
        },
        "required": ["title", "owner"],
        "$defs": {"Owner": {"type": "object", "properties": {"name": {}}}},
    }
    assert len(dump_compact(short)) < 0.7 * len(dump_compact(ISSUE))


@pytest.mark.parametrize(
    "property_",
    [
        {**TEXT_OR_NULL, "default": "x"}, TEXT_OR_NULL, {"type": "null", "default": None},
        {"anyOf": [{"type": "null"}], "default": None}, {"const": None},
    ],
)  # fmt: skip
def test_null_stays_where_it_may_mean_something(property_: dict[str, Any]) -> None:
    short = shorten_schema({"properties": {"x": property_}})["properties"]["x"]
    for value in (None, "x"):
        assert bool(describe_violations(short, value)) == bool(describe_violations(property_, value))


def test_a_required_property_keeps_its_null() -> None:
    schema = {"properties": {"x": {**TEXT_OR_NULL, "default": None}}, "required": ["x"]}
    assert shorten_schema(schema) == schema


@pytest.mark.parametrize(
    "arguments",
    [
        {"title": "a", "owner": {"name": "b"}}, {"title": "a", "owner": {}, "body": "x", "labels": ["y"]},
        {"title": "a", "owner": {}, "kind": "default"}, {"title": "a", "owner": {}, "kind": "title"},
    ],
)  # fmt: skip
def test_what_fits_the_short_schema_fits_the_long_one(arguments: dict[str, Any]) -> None:
    assert not describe_violations(shorten_schema(ISSUE), arguments)
    assert not describe_violations(ISSUE, arguments)


@pytest.mark.parametrize(
    ("schema", "short"),
    [
        ({"type": "object", "additionalProperties": False}, {"type": "object", "properties": {}}),
        ({"type": "object", "additionalProperties": True}, {"type": "object"}),
        (
            {"additionalProperties": {"type": "string", "title": "T"}},
            {"additionalProperties": {"type": "string"}},
        ),
        ({"default": {"title": "x"}, "examples": [{"title": "y"}]},) * 2,
        (True, True),
        ({"anyOf": [{"title": "A"}, {"$id": "b", "type": "string"}]}, {"anyOf": [{}, {"type": "string"}]}),
    ],
)  # fmt: skip
def test_only_what_says_nothing_is_left_out(schema: Any, short: Any) -> None:
    assert shorten_schema(schema) == short
