"""Conditions: when each operation holds, and what is said of one that is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from lemming.libraries.conditions.predicates import (
    MAX_CONDITIONS,
    OPS,
    compile_condition,
    condition_schema,
    evaluate,
    get_field,
    validate_condition,
)

ANSWER = {"verdict": "good", "score": 7, "done": True, "tags": ["a", "b"], "nothing": None, "deep": [{"x": 1}]}


def looks(field: str, op: str, *value: Any) -> dict[str, Any]:
    return {"field": field, "op": op, **({"value": value[0]} if value else {})}


TRUE = [
    looks("verdict", "is", "good"),
    looks("score", "is", 7.0),
    looks("done", "is", True),
    looks("score", "is_not", True),
    looks("not_there", "is_not", "good"),
    looks("verdict", "in", ["good", "fair"]),
    looks("verdict", "not_in", ["bad"]),
    looks("not_there", "not_in", ["bad"]),
    looks("score", "lt", 8),
    looks("score", "le", 7),
    looks("score", "gt", 6.5),
    looks("verdict", "ge", "good"),
    looks("tags", "contains", "a"),
    looks("verdict", "contains", "oo"),
    looks("", "contains", "score"),
    looks("verdict", "starts_with", "go"),
    looks("verdict", "ends_with", "od"),
    looks("verdict", "matches", "^g.*d$"),
    looks("tags", "longer_than", 1),
    looks("score", "exists"),
    looks("nothing", "missing"),
    looks("deep.0.x", "is", 1),
    looks("deep.0", "is", {"x": 1}),
    looks("tags.-1", "is", "b"),
    {"all": [looks("score", "gt", 1), looks("done", "is", True)]},
    {"any": [looks("score", "gt", 100), looks("done", "is", True)]},
    {"not": looks("score", "gt", 100)},
]
FALSE = [
    looks("done", "is", 1),
    looks("not_there", "is", None),
    looks("not_there", "lt", 8),
    looks("verdict", "lt", 8),
    looks("done", "gt", 0),
    looks("score", "contains", 7),
    looks("score", "matches", "7"),
    looks("tags.2", "exists"),
    looks("tags.²", "exists"),
    looks("verdict.length", "exists"),
    looks("verdict.good", "exists"),
    looks("score.7", "exists"),
    looks("deep.0", "is", {"x": 2}),
    looks("deep.0", "is", {"x": True}),
    looks("deep.0", "is", {"y": 1}),
    {"all": [looks("score", "gt", 1), looks("done", "is", False)]},
    {"not": looks("verdict", "is", "good")},
]


@pytest.mark.parametrize("condition", TRUE, ids=str)
def test_a_condition_that_fits_holds(condition: dict[str, Any]) -> None:
    assert list(validate_condition(condition)) == []
    assert compile_condition(condition)(ANSWER)


@pytest.mark.parametrize("condition", FALSE, ids=str)
def test_a_condition_that_does_not_fit_does_not_hold(condition: dict[str, Any]) -> None:
    assert list(validate_condition(condition)) == []
    assert not evaluate(condition, ANSWER)


def test_every_operation_is_tried() -> None:
    assert {each["op"] for each in TRUE if "op" in each} == set(OPS)


@pytest.mark.parametrize(
    ("condition", "pointer", "words"),
    [
        ({"field": "a", "op": "equals", "value": 1}, "/op", 'no operation "equals"'),
        ({"field": "a", "op": "contain", "value": 1}, "/op", 'did you mean "contains"?'),
        ({"field": "a", "value": 1}, "", 'must have "op"'),
        ({"op": "is", "value": 1}, "", "no field"),
        ({"field": "a", "op": "is"}, "", '"is" must have a value'),
        ({"field": "a", "op": "exists", "value": 1}, "/value", "must not have a value"),
        ({"field": "a", "op": "in", "value": "x"}, "/value", '"in" does not accept "x"'),
        ({"field": "a", "op": "lt", "value": True}, "/value", '"lt" does not accept true'),
        ({"field": "a", "op": "matches", "value": "("}, "/value", "expected a regular expression"),
        ({"field": "a", "op": "is", "value": 1, "vlaue": 2}, "/vlaue", 'did you mean "value"?'),
        ({"all": []}, "/all", "an empty list"),
        ({"all": [{"field": 3, "op": "exists"}]}, "/all/0/field", "expected a text"),
        ({"not": "x"}, "/not", 'expected a condition, got "x"'),
        ({"all": [{"field": "a", "op": "exists"}], "any": []}, "/any", '"any" must not be beside "all"'),
        ([], "", "got a list"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(condition: Any, pointer: str, words: str) -> None:
    problem = next(validate_condition(condition))
    assert problem.pointer == pointer
    assert words in str(problem)
    assert not isinstance(condition, dict) or not evaluate(condition, ANSWER)


def test_a_flood_of_conditions_is_refused_quickly() -> None:
    deep: dict[str, Any] = looks("a", "exists")
    for _ in range(60):
        deep = {"not": deep}
    assert "nested at most" in str(next(validate_condition(deep)))
    wide = {"all": [looks("a", "nonsense")] * 100_000}
    assert len(list(validate_condition(wide))) <= 201
    sound = [looks("a", "exists")] * (MAX_CONDITIONS - 2)
    assert list(validate_condition({"all": [*sound, looks("a", "exists")]})) == []
    (problem,) = validate_condition({"all": [*sound, looks("a", "nonsense")]})
    assert problem.pointer == f"/all/{MAX_CONDITIONS - 2}/op"
    (problem,) = validate_condition({"all": [*sound, looks("a", "exists"), looks("a", "exists")]})
    assert "at most" in str(problem)


def test_keys_with_dots_in_them_are_found() -> None:
    assert get_field({"a.b": {"c.d": 5}}, "a.b.c.d") == 5


def test_the_schema_admits_what_is_sound_and_nothing_else() -> None:
    from jsonschema import Draft202012Validator

    plain = {"$ref": "#/$defs/When", "$defs": {"When": condition_schema()}}
    check = Draft202012Validator(plain)
    assert all(check.is_valid(condition) for condition in [*TRUE, *FALSE])
    assert not check.is_valid({"field": "a", "op": "equals"})
