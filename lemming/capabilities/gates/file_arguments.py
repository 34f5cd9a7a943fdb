"""Arguments of a call that name files, as gates see them: by the place that is opened, however it is written.

`./x`, `//x`, an absolute path, `a/../x` and a link of the one who made the grant are one place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lemming.kernel.base.paths import components, place_of
from lemming.kernel.files.real_place import opened_place

Json = dict[str, Any]
Places = Mapping[str, Any]
"""Arguments that name places, each with its default (None: it has none)."""


def places_among(names: Sequence[str], parameters: Mapping[str, Any]) -> Json:
    """Return those of a tool's parameters that name places, with their defaults."""
    told = parameters.get("properties", {})
    return {name: told.get(name, {}).get("default") for name in names}


def as_opened(args: Any, places: Places, agent_name: str, base: Path) -> Any:
    """Return arguments with the places that paths lead to: relative to the organisation, else absolute."""
    return _with_places(args, places, lambda path: opened_place(base, place_of(agent_name, path)))


def as_written(args: Any, places: Places, agent_name: str) -> Any:
    """Return the same as far as words tell it; what an absolute path leads to only the disk tells. Pure."""
    return _with_places(args, places, lambda path: os.path.normpath(place_of(agent_name, path)))


def opened_in_gate(path: str, agent_name: str, base: Path) -> str:
    """Return the place of a path that a gate about an agent's calls names; `agents/...` is anybody's."""
    return opened_place(base, path if _is_of_agents(path) else place_of(agent_name, path))


def written_in_gate(path: str, agent_name: str) -> str:
    """Return the same as far as words tell it. Pure."""
    return os.path.normpath(path if _is_of_agents(path) else place_of(agent_name, path))


def _is_of_agents(path: str) -> bool:
    return not path.startswith("/") and components(path)[:1] == ("agents",)


def is_any_absolute(args: Any, places: Places) -> bool:
    """Return whether one of the paths is absolute: what it leads to no word tells."""
    named = (args.get(name) for name in places) if isinstance(args, dict) else ()
    return any(path.startswith("/") for path in _paths(named))


def _with_places(args: Any, places: Places, change: Callable[[str], str]) -> Any:
    """Return arguments with their paths changed; one that is left out has its default.

    An empty text that is the default stays: it names none, or all. What is no text, no list of texts and no
    `{"path": ...}` stays as it is.
    """
    if not places or not isinstance(args, dict):
        return args
    found = dict(args)
    for name, default in places.items():
        value = args.get(name, default)
        if name in args or isinstance(value, str):
            found[name] = value if value == "" == default else _changed(value, change)
    return found


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_changed(item, change) for item in value]
    if isinstance(value, dict):
        return {key: _changed(it, change) if key == "path" else it for key, it in value.items()}
    return value


def _paths(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            yield from _paths(value)
        elif isinstance(value, dict):
            yield from _paths([value.get("path")])
