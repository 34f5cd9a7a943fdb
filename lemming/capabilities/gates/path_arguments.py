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


def path_parameters(names: Sequence[str], parameters: Mapping[str, Any]) -> Json:
    """Return the path parameters of a tool with their defaults."""
    properties = parameters.get("properties", {})
    return {name: properties.get(name, {}).get("default") for name in names}


def find_defaults(parameters: Mapping[str, Any]) -> Json:
    """Return the defaults of a tool's parameters: a condition must hold for an argument that a call leaves out."""
    properties = parameters.get("properties", {}).items()
    return {name: form["default"] for name, form in properties if form.get("default") is not None}


def resolve_arguments(args: Any, path_defaults: PathDefaults, agent_name: str, base: Path) -> Any:
    """Return arguments with paths resolved on disk: relative to the organisation, else absolute."""
    # Two hard links stay two paths: nothing on disk leads from one to the other.
    return _replace_paths(
        args, path_defaults, lambda path: canonical_path(base, paths.resolve_agent_path(agent_name, path))
    )


def normalize_arguments(args: Any, path_defaults: PathDefaults, agent_name: str) -> Any:
    """Return arguments with paths normalised lexically. Pure: links behind absolute paths need the disk."""
    return _replace_paths(
        args, path_defaults, lambda path: os.path.normpath(paths.resolve_agent_path(agent_name, path))
    )


def resolve_gate_path(path: str, agent_name: str, base: Path) -> str:
    """Return the resolved path named by a gate on an agent's calls. `agents/...` may be any agent's."""
    return canonical_path(base, path if _is_agents_path(path) else paths.resolve_agent_path(agent_name, path))


def normalize_gate_path(path: str, agent_name: str) -> str:
    """Return the lexically normalised path named by a gate. Pure."""
    return os.path.normpath(path if _is_agents_path(path) else paths.resolve_agent_path(agent_name, path))


def _is_agents_path(path: str) -> bool:
    return not path.startswith("/") and paths.components(path)[:1] == ("agents",)


def has_absolute_path(args: Any, path_defaults: PathDefaults) -> bool:
    """Return True if a path argument is absolute: only the disk tells its target."""
    values = (args.get(name) for name in path_defaults) if isinstance(args, dict) else ()
    return any(path.startswith("/") for path in _iter_paths(values))


def _replace_paths(args: Any, path_defaults: PathDefaults, change: Callable[[str], str]) -> Any:
    """Return arguments with their paths replaced. A missing argument gets its default.

    An empty default stays: it names no path, or all paths. Values other than texts, lists of texts and
    `{"path": ...}` stay unchanged.
    """
    if not path_defaults or not isinstance(args, dict):
        return args
    new_args = dict(args)
    for name, default in path_defaults.items():
        value = args.get(name, default)
        if name in args or isinstance(value, str):
            new_args[name] = value if value == "" == default else _map_paths(value, change)
    return new_args


def _map_paths(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_map_paths(item, change) for item in value]
    if isinstance(value, dict):
        return {key: _map_paths(member, change) if key == "path" else member for key, member in value.items()}
    return value


def _iter_paths(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            yield from _iter_paths(value)
        elif isinstance(value, dict):
            yield from _iter_paths([value.get("path")])


# --- paths in gates, resolved like the path arguments of tools -----------------------------------

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
