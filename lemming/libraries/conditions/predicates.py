"""Conditions in files: predicates over JSON values. Pure.

`{"field", "op", "value"}` tests one field; `all`, `any` and `not` combine predicates. Plans use conditions
for routes and checks. The operations are the closed list `OPS`. Format: docs/plans.md, "Conditions".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from lemming.kernel.base.errors import Problem
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.base.name_patterns import InvalidPattern
from lemming.libraries.conditions.regex_search import compile_regex

Predicate = Callable[[Any], bool]
Json = dict[str, Any]

MAX_CONDITIONS = 200
MAX_DEPTH = 16
MAX_PATTERN_CHARS = 500


class _Missing:
    """Value of a missing field; equal to no other value."""


MISSING: Final = _Missing()


def get_field(value: Any, path: str) -> Any:
    """Return the value at a dotted path, or `MISSING`. The empty path is the value itself.

    A number is an index of a list, from 0; -1 is the last item. A key with dots is found as a whole, too.

    >>> get_field({"asked": [{"end": "answered"}]}, "asked.0.end")
    'answered'
    >>> get_field({"a.b": {"c": 1}}, "a.b.c")
    1
    """
    if not path:
        return value
    head, _, tail = path.partition(".")
    if isinstance(value, list):
        return get_field(value[int(head)], tail) if _is_field_path(head, value) else MISSING
    if not isinstance(value, Mapping):
        return MISSING
    parts = path.split(".")
    for length in range(1, len(parts) + 1):
        key = ".".join(parts[:length])
        if key in value:
            field_value = get_field(value[key], ".".join(parts[length:]))
            if field_value is not MISSING:
                return field_value
    if head == "payload" and tail and not tail.startswith("answer"):
        # An answer with a reserved key is stored apart in the payload, and conditions mean that answer.
        return get_field(value, f"payload.answer.{tail}")
    return MISSING


def _is_field_path(text: str, items: list[Any]) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 8 and -len(items) <= int(text) < len(items)


def evaluate(condition: Json, value: Any) -> bool:
    """Return True if a condition is true for a value. An invalid condition (`validate_condition`) is false.

    >>> evaluate({'field': 'verdict', 'op': 'is', 'value': 'good'}, {'verdict': 'good'})
    True
    >>> evaluate({'not': {'field': 'left', 'op': 'gt', 'value': 3}}, {'left': 2})
    True
    """
    return not any(validate_condition(condition)) and compile_condition(condition)(value)


def compile_condition(condition: Json) -> Predicate:
    """Return a valid condition as a function. Raises `KeyError` or similar errors for an invalid condition."""
    if "all" in condition:
        every = [compile_condition(part) for part in condition["all"]]
        return lambda value: all(part(value) for part in every)
    if "any" in condition:
        some = [compile_condition(part) for part in condition["any"]]
        return lambda value: any(part(value) for part in some)
    if "not" in condition:
        inner = compile_condition(condition["not"])
        return lambda value: not inner(value)
    test, path, operand = _TESTS[condition["op"]], condition["field"], condition.get("value")
    return lambda value: test(get_field(value, path), operand)


def iter_tests(condition: Json, pointer: str = "") -> Iterator[tuple[Json, str]]:
    """Yield the tests of a valid condition, with JSON pointers."""
    for group in ("all", "any"):
        for index, part in enumerate(condition.get(group, ())):
            yield from iter_tests(part, f"{pointer}/{group}/{index}")
    if "not" in condition:
        yield from iter_tests(condition["not"], f"{pointer}/not")
    if "field" in condition:
        yield condition, pointer


def iter_fields(condition: Json) -> Iterator[str]:
    """Yield the fields that a valid condition tests."""
    return (test["field"] for test, _ in iter_tests(condition))


def validate_condition(condition: Any, pointer: str = "") -> Iterator[Problem]:
    """Yield the problems of a condition, each with a JSON pointer below `pointer`."""
    remaining = [MAX_CONDITIONS]
    yield from _validate_condition(condition, pointer, 1, remaining)
    if remaining[0] < 0:
        message = f"a condition must have at most {MAX_CONDITIONS} parts, got more"
        yield Problem(message, pointer=pointer, hint="split it")


def _validate_condition(condition: Any, pointer: str, depth: int, remaining: list[int]) -> Iterator[Problem]:
    remaining[0] -= 1
    if remaining[0] < 0:
        return
    if depth > MAX_DEPTH:
        message = f"a condition must be nested at most {MAX_DEPTH} deep, got more"
        yield Problem(message, pointer=pointer, hint="split it")
    elif not isinstance(condition, dict):
        hint = 'write {"field": "verdict", "op": "is", "value": "good"}, for example'
        yield Problem(f"expected a condition, got {_describe_value(condition)}", pointer=pointer, hint=hint)
    elif groups := [key for key in ("all", "any", "not") if key in condition]:
        yield from _validate_group(condition, groups[0], pointer, depth, remaining)
    else:
        yield from _validate_test(condition, pointer)


def _validate_group(condition: Json, group: str, pointer: str, depth: int, remaining: list[int]) -> Iterator[Problem]:
    for key in condition:
        if key != group:
            message = f'"{key}" must not be beside "{group}"'
            yield Problem(message, pointer=f"{pointer}/{key}", hint='put both into "all" or "any"')
    inner = condition[group]
    if group == "not":
        yield from _validate_condition(inner, f"{pointer}/not", depth + 1, remaining)
    elif not isinstance(inner, list) or not inner:
        description = "an empty list" if inner == [] else _describe_value(inner)
        hint = f'write "{group}": [{{...}}, {{...}}]'
        yield Problem(f"expected a list of conditions, got {description}", pointer=f"{pointer}/{group}", hint=hint)
    else:
        for index, part in enumerate(inner):
            yield from _validate_condition(part, f"{pointer}/{group}/{index}", depth + 1, remaining)


def _validate_test(condition: Json, pointer: str) -> Iterator[Problem]:
    for key in condition:
        if key not in _KEYS:
            hint = did_you_mean(key, _KEYS) or f"use one of {', '.join(_KEYS)}"
            yield Problem(f'unknown key "{key}" in a condition', pointer=f"{pointer}/{key}", hint=hint)
    if not isinstance(condition.get("field"), str):
        reason, location = "no field", pointer
        if "field" in condition:
            reason, location = f"expected a text, got {_describe_value(condition['field'])}", f"{pointer}/field"
        message = f"a condition must name one field: {reason}"
        yield Problem(message, pointer=location, hint='write "field": "verdict", for example')
    op = condition.get("op")
    if not isinstance(op, str) or op not in OPS:
        message = 'a condition must have "op"' if op is None else f"there is no operation {_describe_value(op)}"
        hint = (did_you_mean(op, tuple(OPS)) if isinstance(op, str) else "") or f"use one of {', '.join(OPS)}"
        yield Problem(message, pointer=pointer if op is None else f"{pointer}/op", hint=hint)
        return
    yield from _validate_value(condition, op, pointer)


def _validate_value(condition: Json, op: str, pointer: str) -> Iterator[Problem]:
    location = f"{pointer}/value"
    if op in _WITHOUT_VALUE:
        if "value" in condition:
            yield Problem(f'"{op}" must not have a value', pointer=location, hint="remove it")
        return
    if "value" not in condition:
        yield Problem(f'"{op}" must have a value', pointer=pointer, hint=f"{op}: {OPS[op]}")
        return
    value = condition["value"]
    if not _TAKES.get(op, lambda _: True)(value):
        yield Problem(f'"{op}" does not accept {_describe_value(value)}', pointer=location, hint=f"{op}: {OPS[op]}")
    elif op == "matches":
        try:
            compile_regex(value)
        except InvalidPattern as error:
            message = f"expected a regular expression: {error}"
            yield Problem(message, pointer=location, hint='use "contains" for a plain text')


def condition_schema() -> Json:
    """Return the JSON Schema of a condition, as a definition that refers to itself as `#/$defs/When`."""
    reference = {"$ref": "#/$defs/When"}
    reference_list = {"type": "array", "items": reference, "minItems": 1}
    test = {
        "field": {"type": "string", "description": "A dotted path, such as answer.verdict."},
        "op": {"enum": list(OPS), "description": "; ".join(f"{op}: {about}" for op, about in OPS.items())},
        "value": {"description": "What the field is held against."},
    }
    groups: list[Json] = [{"all": reference_list}, {"any": reference_list}, {"not": reference}]
    branches = [_closed_object(test, ["field", "op"]), *(_closed_object(group, list(group)) for group in groups)]
    return {"description": "A condition.", "anyOf": branches}


def _closed_object(properties: Json, required: list[str]) -> Json:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


OPS = {
    "is": "the same value: text to the letter, 1 and 1.0 are the same",
    "is_not": "another value, or none",
    "in": "one of a list of values",
    "not_in": "none of a list of values, or not there",
    "lt": "a number or a text that comes before",
    "le": "one that comes before, or is the same",
    "gt": "one that comes after",
    "ge": "one that comes after, or is the same",
    "contains": "a text that holds this text, a list that holds this value, an object that has this key",
    "starts_with": "a text that begins with this text",
    "ends_with": "a text that ends with this text",
    "matches": "a text in which this regular expression finds something",
    "longer_than": "a text of more characters, a list or an object of more items",
    "exists": "it is there and not null",
    "missing": "it is not there, or null",
}
"""The test of each operation. Only `missing`, `is_not` and `not_in` hold for a missing field."""

_KEYS = ("field", "op", "value")
_WITHOUT_VALUE = ("exists", "missing")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_TAKES: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("in", "not_in"), lambda value: isinstance(value, list)),
    **dict.fromkeys(("lt", "le", "gt", "ge"), lambda value: _is_number(value) or _is_text(value)),
    **dict.fromkeys(("starts_with", "ends_with"), _is_text),
    "matches": lambda value: _is_text(value) and len(value) <= MAX_PATTERN_CHARS,
    "longer_than": _is_number,
}
"""Value types of operations that do not accept every value."""


def _json_equal(left: Any, right: Any) -> bool:
    """Return True if two JSON values are equal. Python would treat true as 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_json_equal, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_json_equal(left[key], right[key]) for key in left)
    return type(left) is not _Missing and bool(left == right)


def _is_among(value: Any, candidates: list[Any]) -> bool:
    return any(_json_equal(value, candidate) for candidate in candidates)


def _ordered(test: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compare(left: Any, right: Any) -> bool:
        is_comparable = (_is_number(left) and _is_number(right)) or (_is_text(left) and _is_text(right))
        return is_comparable and test(left, right)

    return compare


def _contains(container: Any, part: Any) -> bool:
    if isinstance(container, str):
        return isinstance(part, str) and part in container
    if isinstance(container, list):
        return _is_among(part, container)
    return isinstance(container, dict) and isinstance(part, str) and part in container


def _text_operator(test: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    return lambda value, expected: isinstance(value, str) and test(value, expected)


def _is_present(value: Any) -> bool:
    return value is not MISSING and value is not None


_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "is": _json_equal,
    "is_not": lambda value, expected: not _json_equal(value, expected),
    "in": _is_among,
    "not_in": lambda value, expected: not _is_among(value, expected),
    "lt": _ordered(lambda value, expected: value < expected),
    "le": _ordered(lambda value, expected: value <= expected),
    "gt": _ordered(lambda value, expected: value > expected),
    "ge": _ordered(lambda value, expected: value >= expected),
    "contains": _contains,
    "starts_with": _text_operator(str.startswith),
    "ends_with": _text_operator(str.endswith),
    "matches": _text_operator(lambda value, expected: compile_regex(expected).search(value)),
    "longer_than": lambda value, expected: isinstance(value, (str, list, dict)) and len(value) > expected,
    "exists": lambda value, _: _is_present(value),
    "missing": lambda value, _: not _is_present(value),
}


def _describe_value(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: f'"{str(value)[:60]}"', type(None): "null"}
    if isinstance(value, bool):
        return "true" if value else "false"
    return names.get(type(value), str(value)[:60])
