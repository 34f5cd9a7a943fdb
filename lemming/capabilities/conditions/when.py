"""The one form in which a file says under which condition something holds: a predicate over JSON. Pure.

`{"field", "op", "value"}` looks at one field; `all`, `any` and `not` put predicates together. Plans use
it for routes and checks. Operations: `OPS`, a closed list. Format: docs/plans.md, "Conditions".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from lemming.capabilities.conditions.expressions import expression
from lemming.kernel.base.errors import Problem
from lemming.kernel.base.jsontext import nearest
from lemming.kernel.base.patterns import NoExpression

Predicate = Callable[[Any], bool]
Json = dict[str, Any]

MOST_CONDITIONS = 200
MOST_DEEP = 16
LONGEST_PATTERN = 500


class _Missing:
    """The value of a field that is not there; equal to nothing."""


MISSING: Final = _Missing()


def field_of(value: Any, path: str) -> Any:
    """Return what stands at a dotted path, `MISSING` when nothing does. The empty path is the value itself.

    A number is a place in a list, from 0; -1 is the last. A key with dots in it is found as a whole too.

    >>> field_of({"asked": [{"end": "answered"}]}, "asked.0.end")
    'answered'
    >>> field_of({"a.b": {"c": 1}}, "a.b.c")
    1
    """
    if not path:
        return value
    head, _, rest = path.partition(".")
    if isinstance(value, list):
        return field_of(value[int(head)], rest) if _is_place(head, value) else MISSING
    if not isinstance(value, Mapping):
        return MISSING
    parts = path.split(".")
    for length in range(1, len(parts) + 1):
        key = ".".join(parts[:length])
        if key in value:
            found = field_of(value[key], ".".join(parts[length:]))
            if found is not MISSING:
                return found
    if head == "payload" and rest and not rest.startswith("answer"):
        # An answer whose form has a word of requests stands apart in its payload, and is meant all the same.
        return field_of(value, f"payload.answer.{rest}")
    return MISSING


def _is_place(text: str, items: list[Any]) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 8 and -len(items) <= int(text) < len(items)


def holds(condition: Json, value: Any) -> bool:
    """Return whether a condition holds for a value; one that is not sound (`problems_of`) never does.

    >>> holds({"field": "verdict", "op": "is", "value": "good"}, {"verdict": "good"})
    True
    >>> holds({"not": {"field": "left", "op": "gt", "value": 3}}, {"left": 2})
    True
    """
    return not any(problems_of(condition)) and predicate(condition)(value)


def predicate(condition: Json) -> Predicate:
    """Return a sound condition as a function. Raises `KeyError` and the like for one with problems."""
    if "all" in condition:
        every = [predicate(each) for each in condition["all"]]
        return lambda value: all(each(value) for each in every)
    if "any" in condition:
        some = [predicate(each) for each in condition["any"]]
        return lambda value: any(each(value) for each in some)
    if "not" in condition:
        inner = predicate(condition["not"])
        return lambda value: not inner(value)
    test, path, wanted = _TESTS[condition["op"]], condition["field"], condition.get("value")
    return lambda value: test(field_of(value, path), wanted)


def fields_in(condition: Json) -> Iterator[str]:
    """Yield the fields that a sound condition looks at."""
    for word in ("all", "any"):
        for each in condition.get(word, ()):
            yield from fields_in(each)
    if "not" in condition:
        yield from fields_in(condition["not"])
    if "field" in condition:
        yield condition["field"]


# --- what is wrong with one ---------------------------------------------------------------------


def problems_of(condition: Any, pointer: str = "") -> Iterator[Problem]:
    """Yield what is wrong with a condition, each with its JSON pointer below `pointer`."""
    left = [MOST_CONDITIONS]
    yield from _problems(condition, pointer, 1, left)
    if left[0] < 0:
        yield Problem(f"more than {MOST_CONDITIONS} conditions in one", pointer=pointer, hint="split it up")


def _problems(condition: Any, pointer: str, depth: int, left: list[int]) -> Iterator[Problem]:
    left[0] -= 1
    if left[0] < 0:
        return
    if depth > MOST_DEEP:
        yield Problem(f"conditions deeper than {MOST_DEEP}", pointer=pointer, hint="split it up")
    elif not isinstance(condition, dict):
        hint = 'such as {"field": "verdict", "op": "is", "value": "good"}'
        yield Problem(f"expected a condition, found {_shown(condition)}", pointer=pointer, hint=hint)
    elif together := [key for key in ("all", "any", "not") if key in condition]:
        yield from _problems_of_group(condition, together[0], pointer, depth, left)
    else:
        yield from _problems_of_test(condition, pointer)


def _problems_of_group(
    condition: Json, word: str, pointer: str, depth: int, left: list[int]
) -> Iterator[Problem]:
    for key in condition:
        if key != word:
            message = f'"{key}" beside "{word}"'
            yield Problem(message, pointer=f"{pointer}/{key}", hint='put both into "all" or "any"')
    inner = condition[word]
    if word == "not":
        yield from _problems(inner, f"{pointer}/not", depth + 1, left)
    elif not isinstance(inner, list) or not inner:
        found = "an empty list" if inner == [] else _shown(inner)
        hint = f'"{word}": [{{...}}, {{...}}]'
        yield Problem(f"expected a list of conditions, found {found}", pointer=f"{pointer}/{word}", hint=hint)
    else:
        for index, each in enumerate(inner):
            yield from _problems(each, f"{pointer}/{word}/{index}", depth + 1, left)


def _problems_of_test(condition: Json, pointer: str) -> Iterator[Problem]:
    for key in condition:
        if key not in _KEYS:
            hint = nearest(key, _KEYS) or f"the keys are {', '.join(_KEYS)}"
            yield Problem(f'unknown key "{key}" in a condition', pointer=f"{pointer}/{key}", hint=hint)
    if not isinstance(condition.get("field"), str):
        what = (
            "no field" if "field" not in condition else f"expected a text, found {_shown(condition['field'])}"
        )
        place = pointer if "field" not in condition else f"{pointer}/field"
        yield Problem(f"{what}: which one is looked at?", pointer=place, hint='such as "field": "verdict"')
    op = condition.get("op")
    if not isinstance(op, str) or op not in OPS:
        found = "no operation" if op is None else f"no operation {_shown(op)}"
        hint = (nearest(op, tuple(OPS)) if isinstance(op, str) else "") or f"operations: {', '.join(OPS)}"
        yield Problem(found, pointer=pointer if op is None else f"{pointer}/op", hint=hint)
        return
    yield from _problems_of_value(condition, op, pointer)


def _problems_of_value(condition: Json, op: str, pointer: str) -> Iterator[Problem]:
    place = f"{pointer}/value"
    if op in _WITHOUT_VALUE:
        if "value" in condition:
            yield Problem(f'"{op}" takes no value', pointer=place, hint="take it out")
        return
    if "value" not in condition:
        yield Problem(f'"{op}" needs a value', pointer=pointer, hint=f"{op}: {OPS[op]}")
        return
    value = condition["value"]
    if not _TAKES.get(op, lambda _: True)(value):
        yield Problem(f'"{op}" does not take {_shown(value)}', pointer=place, hint=f"{op}: {OPS[op]}")
    elif op == "matches":
        try:
            expression(value)
        except NoExpression as error:
            yield Problem(
                f"no regular expression: {error}", pointer=place, hint='"contains" takes a plain text'
            )


def schema() -> Json:
    """Return the JSON Schema of a condition, as a definition that refers to itself as `#/$defs/When`."""
    own = {"$ref": "#/$defs/When"}
    several = {"type": "array", "items": own, "minItems": 1}
    test = {
        "field": {"type": "string", "description": "A dotted path, such as answer.verdict."},
        "op": {"enum": list(OPS), "description": "; ".join(f"{op}: {about}" for op, about in OPS.items())},
        "value": {"description": "What the field is held against."},
    }
    groups: list[Json] = [{"all": several}, {"any": several}, {"not": own}]
    branches = [_closed(test, ["field", "op"]), *(_closed(group, list(group)) for group in groups)]
    return {"description": "A condition.", "anyOf": branches}


def _closed(properties: Json, required: list[str]) -> Json:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


# --- the operations -----------------------------------------------------------------------------

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
"""When each holds. Of a field that is not there, only `missing`, `is_not` and `not_in` do."""

_KEYS = ("field", "op", "value")
_WITHOUT_VALUE = ("exists", "missing")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_ordered(value: Any) -> bool:
    return _is_number(value) or _is_text(value)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


_TAKES: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("in", "not_in"), _is_list),
    **dict.fromkeys(("lt", "le", "gt", "ge"), _is_ordered),
    **dict.fromkeys(("starts_with", "ends_with"), _is_text),
    "matches": lambda value: _is_text(value) and len(value) <= LONGEST_PATTERN,
    "longer_than": _is_number,
}
"""What an operation can be given, where that is not any value."""


def _same(found: Any, wanted: Any) -> bool:
    """Whether two JSON values are the same one; Python takes true for 1."""
    if isinstance(found, bool) or isinstance(wanted, bool):
        return found is wanted
    if isinstance(found, list) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(_same, found, wanted))
    if isinstance(found, dict) and isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(_same(found[key], wanted[key]) for key in found)
    return type(found) is not _Missing and bool(found == wanted)


def _is_among(found: Any, wanted: list[Any]) -> bool:
    return any(_same(found, each) for each in wanted)


def _compared(test: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compare(found: Any, wanted: Any) -> bool:
        alike = (_is_number(found) and _is_number(wanted)) or (_is_text(found) and _is_text(wanted))
        return alike and test(found, wanted)

    return compare


def _contains(found: Any, wanted: Any) -> bool:
    if isinstance(found, str):
        return isinstance(wanted, str) and wanted in found
    if isinstance(found, list):
        return _is_among(wanted, found)
    return isinstance(found, dict) and isinstance(wanted, str) and wanted in found


def _of_text(test: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    return lambda found, wanted: isinstance(found, str) and test(found, wanted)


def _is_there(found: Any) -> bool:
    return found is not MISSING and found is not None


_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "is": _same,
    "is_not": lambda found, wanted: not _same(found, wanted),
    "in": _is_among,
    "not_in": lambda found, wanted: not _is_among(found, wanted),
    "lt": _compared(lambda found, wanted: found < wanted),
    "le": _compared(lambda found, wanted: found <= wanted),
    "gt": _compared(lambda found, wanted: found > wanted),
    "ge": _compared(lambda found, wanted: found >= wanted),
    "contains": _contains,
    "starts_with": _of_text(str.startswith),
    "ends_with": _of_text(str.endswith),
    "matches": _of_text(lambda found, wanted: expression(wanted).finds(found)),
    "longer_than": lambda found, wanted: isinstance(found, (str, list, dict)) and len(found) > wanted,
    "exists": lambda found, _: _is_there(found),
    "missing": lambda found, _: not _is_there(found),
}


def _shown(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: f'"{str(value)[:60]}"', type(None): "null"}
    if isinstance(value, bool):
        return "true" if value else "false"
    return names.get(type(value), str(value)[:60])
