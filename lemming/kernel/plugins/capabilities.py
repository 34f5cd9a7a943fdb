"""Capabilities by name, loaded where an organisation uses them: of the table, and what plugins bring.

The table: `lemming.kernel.plugins.shipped`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache, partial
from importlib import import_module
from typing import Any

from lemming.kernel.base.errors import ConfigError
from lemming.kernel.plugins.registry import load_installed_plugins, not_imported, offered, register
from lemming.kernel.plugins.shipped import (
    EXECUTORS,
    FORMATS,
    LISTED,
    OF_BACKEND,
    OF_PROVIDER,
    RECORDED,
    REMOVED,
    REQUESTS,
    SCHEDULED,
    SHIPPED,
    SOURCES,
    lacking,
)
from lemming.kernel.plugins.table import TableLine

Load = Callable[[], Any]
FOLDER = "lemming.capabilities."
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}\Z")


_REQUESTS = tuple((it.name, it.requests) for it in SHIPPED.values() if it.requests)


def register_capability(kind: Any) -> Any:
    """Make a class the capability that it names, for modules that are plugins. Usable as a decorator.

    Raises `ValueError` for the name of one that ships, and for what is no name or has settings of no shape.
    """
    made = kind()
    if not _NAME.match(made.name):
        raise ValueError(f'"{made.name}" is no name of a capability: it is of a-z, 0-9, - and _')
    if wrong := [it for it in (made.settings, made.resume_settings) if not dataclasses.is_dataclass(it)]:
        raise ValueError(f"the settings of {made.name} are a dataclass, and {wrong[0]!r} is none")
    shipped = {name: listed.place for name, listed in LISTED.items()}
    register("capability", made.name, made, defined_by=kind, shipped=shipped)
    return kind


def capability(name: str, plugins: Iterable[str] | None = None) -> Any:
    """Return a capability by its name, made once; raise `ConfigError` where nobody brings it.

    `plugins`: those that the organisation names; None: any of the process.
    """
    if name in LISTED:
        return _shipped(name)
    if (found := brought(plugins).get(name)) is not None:
        return found
    if is_unknown_here(name, plugins):
        raise ConfigError(f'"{name}" is for a module of plugins to say, and a look imports none')
    raise ConfigError(
        f'no capability "{name}" is installed',
        hint="install what brings it, or name its module in plugins of config/org.json",
    )


def capabilities_here() -> Iterator[Any]:
    """Yield all capabilities that ship and are here, for what is done seldom, whoever uses them."""
    yield from (capability(name) for name in LISTED if not why_missing(name))


def is_unknown_here(name: str, plugins: Iterable[str] | None) -> bool:
    """Return whether a capability may be that of a module of the organisation's own that is not imported."""
    return name not in LISTED and name not in brought(plugins) and bool(not_imported([*(plugins or ())]))


def capability_here(name: str) -> Any:
    """Return a capability by its name; None where nobody brings it. For those who only look."""
    try:
        return capability(name)
    except ConfigError:
        return None


def may_begin(name: str) -> bool:
    """Return whether a capability may ask, or show, before a turn's own first question."""
    return name not in LISTED or LISTED[name].begins


def made_by(payload: Mapping[str, Any]) -> str:
    """Return the capability whose request a payload is; empty where it is somebody's own.

    >>> made_by({"text": "pay?", "call": {"gate": "config/org.json#/gates/0"}}), made_by({"call": "me"})
    ('approvals', '')
    """
    for name, path in _REQUESTS:
        value: Any = payload
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            return name
    return ""


def missing_for_gate(then: str) -> str:
    """Return in words what is missing that a gate's `then` needs; empty where it is here."""
    return next((why_missing(it.name) for it in SHIPPED.values() if then in it.gates), "")


def missing_for_command(command: str) -> str:
    """Return in words what is missing that a command needs; empty where it is here."""
    return next((why_missing(it.name) for it in SHIPPED.values() if command in it.commands), "")


def missing_for_tool(tool: str) -> str:
    """Return in words what is missing that a tool of this name needs; empty where nothing is."""
    return next((why_missing(it.name) for it in LISTED.values() if _is_tool_of(it, tool)), "")


def _is_tool_of(listed: TableLine, tool: str) -> bool:
    return tool in listed.tools or bool(listed.prefix and tool.startswith(listed.prefix))


def tools_here() -> dict[str, str]:
    """Return the tools that capabilities bring which are here, by name, each with its place."""
    here = (it for it in LISTED.values() if it.tools and not why_missing(it.name))
    return {tool: place for it in here for tool, place in it.tools.items()}


def source_of(tool: str) -> str:
    """Return the capability whose servers would have a tool of this name or pattern; empty for none."""
    return next((it.name for it in SOURCES.values() if it.prefix and tool.startswith(it.prefix)), "")


def source_class(name: str) -> Any:
    """Return the class of the further tools of a capability that ships; raise `ConfigError` without it."""
    return _class_of(name, LISTED[name].source)


def carrier_classes() -> list[Any]:
    """Return the classes of those who carry messages in and out, as far as they are here."""
    here = (it for it in LISTED.values() if it.carrier and not why_missing(it.name))
    return [_class_of(it.name, it.carrier) for it in here]


def tool_of_function(function: Any) -> Any:
    """Return a function with `@tool` as a tool; raise `ConfigError` where nobody here makes one of it."""
    name = next(it.name for it in LISTED.values() if it.of_functions)
    return _class_of(name, LISTED[name].of_functions)(function)


def missing_for_provider(provider: str) -> str:
    """Return in words what is missing that a provider needs; empty where it is here, or nobody's own."""
    by = OF_PROVIDER.get(provider) or OF_BACKEND.get(provider)
    return why_missing(by) if by else ""


def missing_for_executor(executor: str) -> str:
    """Return in words what is missing that an `executor` needs; empty where it is here."""
    return why_missing(EXECUTORS[executor][0]) if executor in EXECUTORS else ""


def missing_for_turn() -> Mapping[str, str]:
    """Return the keys of a resume's `turn` that nobody here reads, and what is missing."""
    return {key: why for it in SHIPPED.values() if (why := why_missing(it.name)) for key in it.turn}


def wrong_in_schedule(schedule: Any) -> Iterator[tuple[str, str, str]]:
    """Yield what is wrong with keys of a resume's `schedule` that capabilities read: key, message, hint."""
    for key, name, place in SCHEDULED:
        if (value := getattr(schedule, key)) is not None:
            missing = why_missing(name)
            why = (missing, "take the key out, or install lemming-engine again") if missing else None
            if why := why or _loaded(place)(value):
                yield key, *why


def missing_for_model() -> Mapping[str, str]:
    """Return the keys of a line of `config/models.json` that nobody here reads, and what is missing."""
    return {key: why for it in SHIPPED.values() if (why := why_missing(it.name)) for key in it.model}


@cache
def _shipped(name: str) -> Any:
    why = why_missing(name)
    if why:
        raise ConfigError(why, hint="install lemming-engine again")
    return _loaded(LISTED[name].place)()


def by_keys(agent: Any) -> list[str]:
    """Return the capabilities, of those here, whose keys a resume has."""
    named = (name for name, it in SHIPPED.items() if not it.resume.keys().isdisjoint(agent.further))
    return [name for name in named if not why_missing(name)]


def class_of_format(name: str) -> Any:
    """Return the class that a file of a capability is read as; raise `ConfigError` where that is not here."""
    return _class_of(*FORMATS[name])


def record_class(kind: str) -> Any:
    """Return the class of a kind of record that a capability writes; None for one that none does.

    Raises `ConfigError` where the capability is not here.
    """
    return _class_of(*RECORDED[kind]) if kind in RECORDED else None


def executor_class(executor: str) -> Any:
    """Return the class of those who make the model calls; raise `ConfigError` where they are not here."""
    return _class_of(*EXECUTORS[executor])


@cache
def pricing() -> Any:
    """Return what gives the dollars of a call by its model's line and tokens; None: nobody here does."""
    here = (it for it in LISTED.values() if it.pricing and not why_missing(it.name))
    return next((_class_of(it.name, it.pricing) for it in here), None)


def may_be_removed(file: str) -> bool:
    """Return whether a capability removes such a file once it is of no more use.

    >>> may_be_removed("agents/desk/memory/run-3fa9.json"), may_be_removed("agents/desk/memory/a.json")
    (True, False)
    """
    return any(fnmatchcase(file, pattern) for pattern in REMOVED)


def servers_class() -> Any:
    """Return what knows what servers do not take of a request; raise `ConfigError` where it is not here."""
    return next(_class_of(it.name, it.servers) for it in LISTED.values() if it.servers)


def part_in_ticks(name: str) -> Any:
    """Return the class of a capability's part in ticks; raise `ConfigError` where it is not here."""
    return _class_of(name, LISTED[name].tick)


def brought(plugins: Iterable[str] | None) -> Mapping[str, Any]:
    """Return the capabilities that do not ship, by name: of these plugins, and of installed packages.

    It is the very same value as long as nothing else is registered. Raises as `load_installed_plugins`.
    """
    load_installed_plugins()
    return offered("capability", None if plugins is None else tuple(plugins), _as_registered)


def _as_registered(registered: Mapping[str, Any]) -> Mapping[str, Any]:
    return registered


@cache
def why_missing(name: str) -> str:
    """Return in words that a capability of ours is not here, or one that it needs; empty where it is."""
    return why_not_imported(lacking(name))


def why_not_imported(module: str) -> str:
    """Return in words what is missing where a module was not found that is a capability's; else empty.

    >>> why_not_imported("lemming.capabilities.plans.run")
    'the capability "plans" is not installed: lemming.capabilities.plans is missing'
    """
    if not module.startswith(FOLDER):
        return ""
    name = module.removeprefix(FOLDER).partition(".")[0]
    return f'the capability "{name}" is not installed: {FOLDER}{name} is missing'


def in_order(names: Iterable[str], plugins: Iterable[str] | None = None) -> list[str]:
    """Return capabilities so that each comes after those it names in `after`; requests first, others by name.

    Raises `ConfigError` for one that is not here, and for those that come after each other in a circle.

    >>> in_order(["windows", "approvals"])
    ['approvals', 'windows']
    """
    wanted, ordered, under_way = set(names), dict[str, None](), list[str]()

    def visit(name: str) -> None:
        if name in under_way:
            circle = ", ".join(f'"{it}"' for it in under_way)
            raise ConfigError(f"capabilities that come after each other in a circle: {circle}")
        if name in wanted and name not in ordered:
            under_way.append(name)
            for before in LISTED[name].after if name in LISTED else capability(name, plugins).after:
                visit(before)
            under_way.pop()
            ordered[name] = None

    for name in sorted(wanted, key=lambda it: (it != REQUESTS, it)):  # of what is given up, nothing is done
        visit(name)
    return [*ordered]


def resume_keys() -> Mapping[str, Load]:
    """Return the keys of a resume that capabilities read, each with what loads the class that has it.

    That raises `ConfigError` where the capability is not here.
    """
    return {
        key: partial(_class_of, it.name, place) for it in SHIPPED.values() for key, place in it.resume.items()
    }


def member_keys() -> Mapping[str, Load]:
    """Return the keys of one of a team that capabilities read, each with what loads what reads its value."""
    return {
        key: partial(_class_of, it.name, place)
        for it in SHIPPED.values()
        for key, place in it.members.items()
    }


def org_keys() -> Mapping[str, Load]:
    """Return the keys of `config/org.json` that capabilities read, likewise."""
    return {
        key: partial(_class_of, it.name, place) for it in LISTED.values() for key, place in it.org.items()
    }


def _class_of(name: str, place: str) -> Any:
    if why := why_missing(name):
        raise ConfigError(why, hint="install lemming-engine again, or take the key out")
    return _loaded(place)


def _loaded(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
