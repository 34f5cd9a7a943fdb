"""Schemas of strangers: each is held to in a bounded number of steps, or refused in words."""

from __future__ import annotations

import time
from typing import Any

import pytest

from lemming.kernel.base.json_schema.schema_violations import describe_violations, find_schema_flaw

MOST_S = 1.0  # of the thread's own time: what else the machine does is not counted
EVIL = "^(a+)+$"
BAIT = "a" * 40 + "b"


def doubling(last: Any) -> dict[str, Any]:
    """A schema that asks for its last part 2 to the power of 40 times."""
    refs = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    return {"$ref": "#/$defs/d0", "$defs": {**refs, "d40": last}}


def nested(schema: Any, word: str, times: int) -> Any:
    for _ in range(times):
        schema = {word: schema}
    return schema


def many(count: int) -> dict[str, Any]:
    return {f"p{n}": {} for n in range(count)}


BOTH_WAYS = {"anyOf": [{"items": {"$ref": "#"}, "minItems": 98}, {"items": {"$ref": "#"}, "minItems": 99}]}
IN_LISTS: list[Any] = []
for _ in range(20):
    IN_LISTS = [IN_LISTS]
DRAFT_7 = "http://json-schema.org/draft-07/schema#"

HOSTILE: dict[str, tuple[Any, Any]] = {
    "a pattern": ({"pattern": EVIL}, BAIT),
    "a key's pattern": ({"patternProperties": {EVIL: {}}}, {BAIT: 1}),
    "what no pattern names": ({"patternProperties": {EVIL: {}}, "additionalProperties": False}, {BAIT: 1}),
    "what nothing spoke of": ({"patternProperties": {EVIL: {}}, "unevaluatedProperties": False}, {BAIT: 1}),
    "a name's pattern": ({"propertyNames": {"pattern": EVIL}}, {BAIT: 1}),
    "an older draft inside": ({"properties": {"x": {"$schema": DRAFT_7, "pattern": EVIL}}}, {"x": BAIT}),
    "an older draft, deeper": (
        {"properties": {"x": {"$schema": DRAFT_7, "properties": {"y": {"patternProperties": {EVIL: {}}}}}}},
        {"x": {"y": {BAIT: 1}}},
    ),
    "an older draft, by reference": (
        {"$schema": DRAFT_7, "items": {"$ref": "#"}, "patternProperties": {EVIL: {}}},
        [{BAIT: 1}],
    ),
    "a draft nobody knows": ({"properties": {"x": {"$schema": "urn:x"}}, "$ref": "#no"}, {"x": 1}),
    "repetitions of repetitions": ({"pattern": r"(?:(?:\w{9}){9}){9}z"}, "x" * 50_000),
    "a wide pattern": ({"pattern": "(?:[^x]{0,100}y){100}"}, "a" * 500_000),
    "patterns by the hundred": ({"allOf": [{"pattern": rf"\w{{{n}}}z"} for n in range(500)]}, "x" * 10_000),
    "a long pattern": ({"pattern": "(a|b)*" * 5000}, "ab" * 1000),
    "patterns times keys": ({"patternProperties": {f"a{n}": {} for n in range(999)}}, many(999)),
    "a property that is none": ({"pattern": r"\p{Foo}"}, "x"),
    "a key's property that is none": ({"patternProperties": {r"\p{Foo}": {}}}, {"x": 1}),
    "a pattern to look behind": ({"pattern": "(?<=a)b"}, "ab"),
    "all different": ({"uniqueItems": True}, [{"a": n, "b": [n]} for n in range(30_000)]),
    "all different, mixed": ({"uniqueItems": True}, [[n, {}, str(n), None] for n in range(30_000)]),
    "a wide allOf": ({"allOf": [{"type": "string"}] * 20_000}, "x"),
    "a wide allOf of nothing": ({"items": {"allOf": [{}] * 1000}}, [*range(10_000)]),
    "a wide allOf of true": ({"items": {"allOf": [True] * 5000}}, [*range(5_000)]),
    "long errors": ({"allOf": [{"type": "null"}] * 900}, {"k": "v" * 300_000}),
    "many errors": ({"required": [str(n) for n in range(20_000)]}, {}),
    "many errors in one": ({"anyOf": [{"required": [str(n) for n in range(200)]}] * 200}, {}),
    "doubling": (doubling({"type": "string"}), 1),
    "doubling that fits": (doubling({"type": "string"}), "x"),
    "doubling, and what is left": ({**doubling(True), "unevaluatedProperties": False}, {"a": 1}),
    "doubling, and items left": ({**doubling(True), "unevaluatedItems": False}, [1]),
    "two ways at each level": (BOTH_WAYS, IN_LISTS),
    "itself": ({"$ref": "#"}, 1),
    "itself twice": ({"allOf": [{"$ref": "#"}, {"$ref": "#"}]}, 1),
    "itself, and what is left": ({"$ref": "#", "unevaluatedProperties": False}, {"a": 1}),
    "deep": (nested({}, "not", 3000), 1),
    "deep items": (nested({}, "items", 900), nested([], "items", 0)),
    "an anchor in a large one": (
        {"$anchor": "n", "items": {"$ref": "#n"}, "properties": many(999)},
        [[[]] * 99] * 99,
    ),
    "a moving anchor": (
        {"$id": "http://x/", "$dynamicAnchor": "n", "items": {"$dynamicRef": "#n"}, "properties": many(999)},
        [[[]] * 99] * 99,
    ),
    "a wide enum": ({"items": {"enum": [*range(3000)]}}, ["x"] * 3000),
    "an enum of wide ones": ({"items": {"enum": [[[n] * 99] for n in range(500)]}}, [[[1] * 99]] * 99),
    "one of many": ({"items": {"oneOf": [{"const": n} for n in range(500)]}}, ["x"] * 500),
    "a number beyond numbers": ({"multipleOf": 1e-300}, 10**4000),
    "a large number": ({"multipleOf": 1e-300}, 1e300),
    "a reference elsewhere": ({"$ref": "http://example.com/x"}, 1),
    "a reference to a file": ({"$ref": "file:///etc/passwd"}, 1),
    "a reference to no schema": ({"$ref": "#/enum/0", "enum": [{"type": 3}]}, {"type": 3}),
    "a reference to a number": ({"$ref": "#/$defs/a", "$defs": {"a": 3}}, 1),
    "a type that is none": ({"type": "strin"}, "x"),
    "half a letter": ({"pattern": "a"}, "\ud800"),
}  # fmt: skip
REFUSED = {
    "a draft nobody knows", "repetitions of repetitions", "a long pattern", "a property that is none",
    "a key's property that is none", "a pattern to look behind", "doubling", "doubling that fits",
    "doubling, and what is left", "doubling, and items left", "two ways at each level", "itself",
    "itself twice", "itself, and what is left", "deep", "a number beyond numbers", "a reference elsewhere",
    "a reference to a file", "a reference to no schema", "a reference to a number", "a type that is none",
    "all different", "all different, mixed", "a wide allOf of nothing", "a wide allOf of true", "long errors",
    "patterns times keys", "a wide enum", "an anchor in a large one", "a moving anchor", "a wide pattern",
    "patterns by the hundred", "one of many", "many errors in one", "many errors",
}  # fmt: skip


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", HOSTILE)
def test_no_schema_takes_a_second(name: str) -> None:
    schema, value = HOSTILE[name]
    find_schema_flaw({})  # what is read once in a process
    began = time.thread_time()
    find_schema_flaw(schema)
    looked = time.thread_time()
    wrong = describe_violations(schema, value)
    assert max(looked - began, time.thread_time() - looked) < MOST_S
    assert any("cannot be used" in it for it in wrong) == (name in REFUSED), wrong


def test_what_cannot_be_used_says_why_and_where() -> None:
    assert find_schema_flaw({"properties": {"a": {"patternProperties": {r"\p{Foo}": {}}}}}) == (
        r"the pattern '\\p{Foo}' cannot be used: Unicode property not found",
        "/properties/a/patternProperties",
    )
    assert describe_violations({"$ref": "http://example.com/x"}, 1) == [
        "the schema cannot be used: 'http://example.com/x' is not in it, and nothing is fetched"
    ]
    assert find_schema_flaw(nested({}, "not", 3000))[0].startswith("it cannot be used: it is too deep")
    assert find_schema_flaw({"$ref": "#"})[0].startswith("it cannot be used: it is too deep")
    assert find_schema_flaw({"$id": "http://[::1", "$ref": "x"})[0].startswith("it cannot be used")
    assert "takes more than" in describe_violations(doubling(True), 1)[0]


def test_a_large_ordinary_schema_is_no_hostile_one() -> None:
    fields = {f"field_{n}": {"type": "string", "description": "a thing", "pattern": "^[a-z]+$"} for n in range(300)}
    schema = {"type": "object", "properties": fields, "required": [*fields], "additionalProperties": False}
    assert find_schema_flaw({"type": "array", "items": schema}) == ("", "")
    rows = [{f"field_{n}": "abc" for n in range(300)}] * 20
    assert describe_violations({"type": "array", "items": schema}, rows) == []


TREE = {"$dynamicAnchor": "node", "properties": {"children": {"type": "array", "items": {"$dynamicRef": "#node"}}}}
NAMED = {"$defs": {"name": {"$anchor": "name", "type": "string", "minLength": 2}}, "properties": {"name": {"$ref": "#name"}}}  # fmt: skip # noqa: E501
BY_KIND = {"if": {"properties": {"kind": {"const": "a"}}}, "then": {"required": ["x"]}, "else": {"required": ["y"]}}

# What draft 2020-12 says of each: what fits, and what does not.
BEHAVIOURS: list[tuple[Any, list[Any], list[Any]]] = [
    (True, [None, 1, {}], []),
    (False, [], [None, 1, {}]),
    ({"properties": {"a": True, "b": False}}, [{"a": 1}, {}], [{"b": 1}]),
    ({"items": False}, [[], 1], [[1]]),
    ({"type": "integer"}, [1, 1.0], [1.5, True, "1"]),
    ({"type": "number"}, [1, 1.5], [True]),
    ({"type": ["string", "null"]}, ["x", None], [1]),
    ({"const": 1}, [1, 1.0], [True, "1"]),
    ({"const": {"a": [False]}}, [{"a": [False]}], [{"a": [0]}, {"a": [False], "b": 1}]),
    ({"enum": [0, "a"]}, [0, 0.0, "a"], [False, None]),
    ({"uniqueItems": True}, [[1, True], [0, False], [[1], [True]], [{"a": 1}, {"a": 2}]], [[1, 1.0], [{"a": 1, "b": 2}, {"b": 2, "a": 1}]]),  # noqa: E501
    ({"uniqueItems": False}, [[1, 1]], []),
    ({"prefixItems": [{"type": "string"}], "items": {"type": "integer"}}, [["a", 1, 2], []], [[1], ["a", "b"]]),
    ({"contains": {"const": 1}, "minContains": 2, "maxContains": 3}, [[1, 1], [1, 1, 1, 2]], [[1], [1] * 4]),
    ({"contains": {"const": 1}, "minContains": 0}, [[]], []),
    ({"minLength": 2, "maxLength": 2}, ["ab", "éé", 1], ["a", "abc"]),
    ({"pattern": "^b"}, ["bc", 1], ["cb"]),
    ({"pattern": r"^\p{Lu}\p{L}+$"}, ["Émile"], ["émile"]),
    ({"pattern": "a$"}, ["ba"], ["a\n"]),
    ({"multipleOf": 0.5}, [1, 1.5], [1.2]),
    ({"exclusiveMinimum": 1, "maximum": 2}, [1.5, 2], [1, 3]),
    ({"required": ["a"]}, [{"a": None}, []], [{}]),
    ({"dependentRequired": {"a": ["b"]}}, [{"a": 1, "b": 1}, {}], [{"a": 1}]),
    ({"dependentSchemas": {"a": {"required": ["b"]}}}, [{}], [{"a": 1}]),
    ({"propertyNames": {"maxLength": 1}}, [{"a": 1}], [{"ab": 1}]),
    ({"patternProperties": {"^n": {"type": "integer"}}}, [{"n1": 1, "a": "x"}], [{"n1": "x"}]),
    ({"properties": {"a": {}}, "patternProperties": {"^n": {}}, "additionalProperties": False}, [{"a": 1, "n": 1}], [{"b": 1}]),
    ({"properties": {"a": {}}, "additionalProperties": {"type": "integer"}}, [{"a": "x", "b": 1}], [{"b": "x"}]),
    ({"minProperties": 1, "maxProperties": 1}, [{"a": 1}], [{}, {"a": 1, "b": 2}]),
    ({"oneOf": [{"type": "integer"}, {"minimum": 2}]}, [1, 2.5], [3, 1.5]),
    ({"not": {"type": "string"}}, [1], ["x"]),
    (BY_KIND, [{"kind": "a", "x": 1}, {"kind": "b", "y": 1}], [{"kind": "a", "y": 1}, {"kind": "b", "x": 1}]),
    ({"$defs": {"a/b": {"type": "integer"}}, "items": {"$ref": "#/$defs/a~1b"}}, [[1]], [["x"]]),
    ({"$ref": "#/$defs/x", "maximum": 3, "$defs": {"x": {"minimum": 1}}}, [2], [0, 4]),
    (NAMED, [{"name": "ab"}], [{"name": "a"}]),
    ({"properties": {"next": {"$ref": "#"}, "v": {"type": "integer"}}}, [{"next": {"v": 1}}], [{"next": {"next": {"v": "x"}}}]),
    (TREE, [{"children": [{"children": []}]}], [{"children": [{"children": 1}]}]),
    ({"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False}, [{"a": 1}], [{"b": 1}]),
    ({"anyOf": [{"required": ["a"], "properties": {"a": {}}}, {"properties": {"b": {}}}], "unevaluatedProperties": False}, [{"b": 1}, {"a": 1}], [{"c": 1}]),  # noqa: E501
    ({"$ref": "#/$defs/x", "$defs": {"x": {"patternProperties": {"^x": {}}}}, "unevaluatedProperties": False}, [{"xy": 1}], [{"y": 1}]),  # noqa: E501
    ({"if": {"required": ["a"], "properties": {"a": {}}}, "then": {"properties": {"b": {}}}, "unevaluatedProperties": False}, [{"a": 1, "b": 1}, {}], [{"b": 1}]),  # noqa: E501
    ({"prefixItems": [{}], "unevaluatedItems": False}, [[1]], [[1, 2]]),
    ({"allOf": [{"contains": {"const": 1}}], "unevaluatedItems": {"type": "string"}}, [[1, "a"]], [[1, 2]]),
    ({"type": "string", "format": "date"}, ["2026-01-01", "no date at all"], [1]),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "fits", "does_not"), BEHAVIOURS, ids=lambda it: str(it)[:40])
def test_a_schema_means_what_the_draft_says(schema: Any, fits: list[Any], does_not: list[Any]) -> None:
    assert find_schema_flaw(schema) == ("", "")
    assert [value for value in fits if describe_violations(schema, value)] == []
    assert [value for value in does_not if not describe_violations(schema, value)] == []


def test_a_type_that_does_not_exist_is_told_with_those_that_do() -> None:
    types = "array, boolean, integer, null, number, object, string"
    assert find_schema_flaw({"properties": {"a": {"type": "strng"}}}) == (
        f"'strng' must be one of {types}",
        "/properties/a/type",
    )
    assert "strng" in find_schema_flaw({"properties": {"type": "strng"}})[0]
    assert types not in find_schema_flaw({"properties": {"type": "strng"}})[0]
