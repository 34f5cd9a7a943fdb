"""Path arguments of a call as gates compare them: by the opened file, in any spelling.

`./x`, `//x`, an absolute path, `a/../x` and a link made by the operator name the same file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lemming.capabilities.gates.gate_format import GateRule
from lemming.kernel.base import paths
from lemming.kernel.files.canonical_path import canonical_path

Json = dict[str, Any]
PathDefaults = Mapping[str, Any]
"""Arguments that name paths, each with its default; None without a default."""

# Not `matches`: a pattern cannot be resolved, and sees the resolved path as text.
_VALUE_OPS = {"is", "is_not", "in", "not_in"}
_PREFIX_OP = "starts_with"


def path_parameters(names: Sequence[str], parameters: Mapping[str, Any]) -> Json:
    """Return the path parameters of a tool with their defaults."""
    properties = parameters.get("properties", {})
    return {name: properties.get(name, {}).get("default") for name in names}


def find_defaults(parameters: Mapping[str, Any]) -> Json:
    """Return the defaults of a tool's parameters: a condition must hold for an argument that a call leaves out."""
    properties = parameters.get("properties", {}).items()
    return {name: form["default"] for name, form in properties if form.get("default") is not None}


class PathResolver:
    """Resolves the paths in an agent's calls, and the paths in gates that are compared with them.

    With `base`, paths are resolved on disk: relative to the organisation, else absolute. Without `base`, paths are
    only normalised as texts: links behind absolute paths need the disk.
    """

    def __init__(self, agent_name: str, base: Path | None = None) -> None:
        self._agent_name, self._base = agent_name, base

    def resolve_arguments(self, args: Any, defaults: Mapping[str, Any], path_defaults: PathDefaults) -> Any:
        """Return arguments as gates see them: with defaults, and with their paths resolved.

        An empty default stays: it names no path, or all paths. Values other than texts, lists of texts and
        `{"path": ...}` stay unchanged.
        """
        if not isinstance(args, dict):
            return args
        filled = {**defaults, **args}
        for name, default in path_defaults.items():
            value = filled.get(name, default)
            if (name in filled or isinstance(value, str)) and not value == "" == default:
                filled[name] = _map_paths(value, self._resolve)
        return filled

    def resolve_rules(self, rules: Iterable[GateRule], names: Collection[str]) -> list[GateRule]:
        """Return gates in which the paths compared with the path arguments `names` are resolved."""
        return [self._resolve_rule(rule, names) for rule in rules] if names else [*rules]

    def _resolve(self, path: str) -> str:
        # Two hard links stay two paths: nothing on disk leads from one to the other.
        full_path = paths.resolve_agent_path(self._agent_name, path)
        return os.path.normpath(full_path) if self._base is None else canonical_path(self._base, full_path)

    def _resolve_gate_path(self, path: str) -> str:
        """Return the resolved path named by a gate. `agents/...` may be any agent's."""
        if path.startswith("/") or paths.components(path)[:1] != ("agents",):
            return self._resolve(path)
        return os.path.normpath(path) if self._base is None else canonical_path(self._base, path)

    def _resolve_rule(self, rule: GateRule, names: Collection[str]) -> GateRule:
        gate = rule.gate
        when = self._resolve_condition(gate.when, names) if gate.when else gate.when
        args = gate.args and {
            name: self._resolve_patterns(patterns) if name in names else patterns
            for name, patterns in gate.args.items()
        }
        if (when, args) == (gate.when, gate.args):
            return rule
        return rule._replace(gate=replace(gate, when=when, args=args))

    def _resolve_condition(self, condition: Json, names: Collection[str]) -> Json:
        if inner := next((operator for operator in ("all", "any") if operator in condition), ""):
            return {inner: [self._resolve_condition(part, names) for part in condition[inner]]}
        if "not" in condition:
            return {"not": self._resolve_condition(condition["not"], names)}
        head, *parts = condition["field"].split(".")
        if head != "args" or not parts or parts[0] not in names:
            return condition
        value, op = condition.get("value"), condition["op"]
        if op in _VALUE_OPS:
            return {**condition, "value": self._resolve_value(value)}
        if op == _PREFIX_OP and isinstance(value, str):
            return {**condition, "value": resolve_prefix(value, self._resolve_gate_path)}
        return condition

    def _resolve_value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._resolve_gate_path(value) if value else value
        return [self._resolve_value(item) for item in value] if isinstance(value, list) else value

    def _resolve_patterns(self, patterns: str | list[str]) -> str | list[str]:
        def resolve_pattern(pattern: str) -> str:
            prefix, star, suffix = pattern.partition("*")
            resolved = resolve_prefix(prefix, self._resolve_gate_path) if star else self._resolve_value(prefix)
            return f"{resolved}{star}{suffix}"

        return resolve_pattern(patterns) if isinstance(patterns, str) else [*map(resolve_pattern, patterns)]


def resolve_prefix(text: str, resolve_path: Callable[[str], str]) -> str:
    """Return the prefix of resolved paths for a prefix of written paths.

    >>> resolve_prefix("./shared//re", lambda path: path.removeprefix("./").replace("//", "/"))
    'shared/re'
    """
    if not text:
        return text
    folder, slash, name = text.rpartition("/")
    if not slash:
        return resolve_path(text)
    resolved = resolve_path(folder or "/")
    return f"{resolved.rstrip('/')}/{name}"


def _map_paths(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_map_paths(item, change) for item in value]
    if isinstance(value, dict):
        return {key: _map_paths(member, change) if key == "path" else member for key, member in value.items()}
    return value


def has_absolute_path(args: Any, path_defaults: PathDefaults) -> bool:
    """Return True if a path argument is absolute: only the disk tells its target."""
    values = (args.get(name) for name in path_defaults) if isinstance(args, dict) else ()
    return any(path.startswith("/") for path in _iter_paths(values))


def _iter_paths(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            yield from _iter_paths(value)
        elif isinstance(value, dict):
            yield from _iter_paths([value.get("path")])
