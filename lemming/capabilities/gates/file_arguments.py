"""Path arguments of a call as gates compare them: by the opened file, in any spelling.

`./x`, `//x`, an absolute path, `a/../x` and a link made by the operator name the same file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lemming.kernel.base.paths import components, resolve_agent_path
from lemming.kernel.files.canonical_path import canonical_path

Json = dict[str, Any]
PathDefaults = Mapping[str, Any]
"""Arguments that name paths, each with its default; None without a default."""


def path_parameters(names: Sequence[str], parameters: Mapping[str, Any]) -> Json:
    """Return the path parameters of a tool with their defaults."""
    properties = parameters.get("properties", {})
    return {name: properties.get(name, {}).get("default") for name in names}


def resolve_arguments(args: Any, path_defaults: PathDefaults, agent_name: str, base: Path) -> Any:
    """Return arguments with paths resolved on disk: relative to the organisation, else absolute."""
    # Two hard links stay two paths: nothing on disk leads from one to the other.
    return _replace_paths(args, path_defaults, lambda path: canonical_path(base, resolve_agent_path(agent_name, path)))


def normalize_arguments(args: Any, path_defaults: PathDefaults, agent_name: str) -> Any:
    """Return arguments with paths normalised lexically. Pure: links behind absolute paths need the disk."""
    return _replace_paths(args, path_defaults, lambda path: os.path.normpath(resolve_agent_path(agent_name, path)))


def resolve_gate_path(path: str, agent_name: str, base: Path) -> str:
    """Return the resolved path named by a gate on an agent's calls. `agents/...` may be any agent's."""
    return canonical_path(base, path if _is_agents_path(path) else resolve_agent_path(agent_name, path))


def normalize_gate_path(path: str, agent_name: str) -> str:
    """Return the lexically normalised path named by a gate. Pure."""
    return os.path.normpath(path if _is_agents_path(path) else resolve_agent_path(agent_name, path))


def _is_agents_path(path: str) -> bool:
    return not path.startswith("/") and components(path)[:1] == ("agents",)


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
