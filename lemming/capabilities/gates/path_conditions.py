"""Paths in gates, read as tools that take files read them: both sides of a comparison are places. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any

from lemming.capabilities.gates.format import Rule

Json = dict[str, Any]
AsPlace = Callable[[str], str]

_WHOLE = {"is", "is_not", "in", "not_in"}
_BEGINNING = "starts_with"


def placed(rules: Iterable[Rule], names: Collection[str], as_place: AsPlace) -> list[Rule]:
    """Return gates with the paths that they hold arguments against as places; `names`: those arguments."""
    return [_placed(rule, names, as_place) for rule in rules] if names else [*rules]


def _placed(rule: Rule, names: Collection[str], as_place: AsPlace) -> Rule:
    gate = rule.gate
    when = _condition(gate.when, names, as_place) if gate.when else gate.when
    args = gate.args and {
        name: _patterns(patterns, as_place) if name in names else patterns
        for name, patterns in gate.args.items()
    }
    if (when, args) == (gate.when, gate.args):
        return rule
    return rule._replace(gate=replace(gate, when=when, args=args))


def _condition(condition: Json, names: Collection[str], as_place: AsPlace) -> Json:
    if inner := next((word for word in ("all", "any") if word in condition), ""):
        return {inner: [_condition(each, names, as_place) for each in condition[inner]]}
    if "not" in condition:
        return {"not": _condition(condition["not"], names, as_place)}
    head, *below = condition["field"].split(".")
    if head != "args" or not below or below[0] not in names:
        return condition
    value, op = condition.get("value"), condition["op"]
    if op in _WHOLE:
        return {**condition, "value": _whole(value, as_place)}
    if op == _BEGINNING and isinstance(value, str):
        return {**condition, "value": _beginning(value, as_place)}
    return condition


def _whole(value: Any, as_place: AsPlace) -> Any:
    if isinstance(value, str):
        return as_place(value) if value else value
    return [_whole(item, as_place) for item in value] if isinstance(value, list) else value


def _patterns(patterns: str | list[str], as_place: AsPlace) -> str | list[str]:
    def pattern(text: str) -> str:
        first, star, rest = text.partition("*")
        return f"{_beginning(first, as_place) if star else _whole(first, as_place)}{star}{rest}"

    return pattern(patterns) if isinstance(patterns, str) else [pattern(each) for each in patterns]


def _beginning(text: str, as_place: AsPlace) -> str:
    """Return how places begin that a path with this beginning leads to.

    >>> _beginning("./shared//re", lambda path: path.removeprefix("./").replace("//", "/"))
    'shared/re'
    """
    if not text:
        return text
    folder, slash, name = text.rpartition("/")
    if not slash:
        return as_place(text)
    place = as_place(folder or "/")
    return f"{place.rstrip('/')}/{name}"
