"""Paths in gates, resolved like the path arguments of tools, for comparisons between resolved paths. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any

from lemming.capabilities.gates.gate_format import GateRule

Json = dict[str, Any]
ResolvePath = Callable[[str], str]

# Not `matches`: a pattern cannot be resolved, and sees the resolved path as text.
_VALUE_OPS = {"is", "is_not", "in", "not_in"}
_PREFIX_OP = "starts_with"


def resolve_rule_paths(rules: Iterable[GateRule], names: Collection[str], resolve_path: ResolvePath) -> list[GateRule]:
    """Return gates in which the paths compared with the path arguments `names` are resolved."""
    return [_resolve_rule(rule, names, resolve_path) for rule in rules] if names else [*rules]


def _resolve_rule(rule: GateRule, names: Collection[str], resolve_path: ResolvePath) -> GateRule:
    gate = rule.gate
    when = _resolve_condition(gate.when, names, resolve_path) if gate.when else gate.when
    args = gate.args and {
        name: _resolve_patterns(patterns, resolve_path) if name in names else patterns
        for name, patterns in gate.args.items()
    }
    if (when, args) == (gate.when, gate.args):
        return rule
    return rule._replace(gate=replace(gate, when=when, args=args))


def _resolve_condition(condition: Json, names: Collection[str], resolve_path: ResolvePath) -> Json:
    if inner := next((operator for operator in ("all", "any") if operator in condition), ""):
        return {inner: [_resolve_condition(part, names, resolve_path) for part in condition[inner]]}
    if "not" in condition:
        return {"not": _resolve_condition(condition["not"], names, resolve_path)}
    head, *parts = condition["field"].split(".")
    if head != "args" or not parts or parts[0] not in names:
        return condition
    value, op = condition.get("value"), condition["op"]
    if op in _VALUE_OPS:
        return {**condition, "value": _resolve_value(value, resolve_path)}
    if op == _PREFIX_OP and isinstance(value, str):
        return {**condition, "value": _resolve_prefix(value, resolve_path)}
    return condition


def _resolve_value(value: Any, resolve_path: ResolvePath) -> Any:
    if isinstance(value, str):
        return resolve_path(value) if value else value
    return [_resolve_value(item, resolve_path) for item in value] if isinstance(value, list) else value


def _resolve_patterns(patterns: str | list[str], resolve_path: ResolvePath) -> str | list[str]:
    def resolve_pattern(text: str) -> str:
        prefix, star, suffix = text.partition("*")
        return (
            f"{_resolve_prefix(prefix, resolve_path) if star else _resolve_value(prefix, resolve_path)}{star}{suffix}"
        )

    return resolve_pattern(patterns) if isinstance(patterns, str) else [resolve_pattern(item) for item in patterns]


def _resolve_prefix(text: str, resolve_path: ResolvePath) -> str:
    """Return the prefix of resolved paths for a prefix of written paths.

    >>> _resolve_prefix("./shared//re", lambda path: path.removeprefix("./").replace("//", "/"))
    'shared/re'
    """
    if not text:
        return text
    folder, slash, name = text.rpartition("/")
    if not slash:
        return resolve_path(text)
    resolved = resolve_path(folder or "/")
    return f"{resolved.rstrip('/')}/{name}"
