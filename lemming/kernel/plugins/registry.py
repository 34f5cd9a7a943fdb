"""Plugins: modules an organisation names, and what they register for it: tools, providers, strategies.

A process imports a module once, and keeps what it registered with the name of the plugin that was loaded.
What an organisation has is a value made of that: what ships, what its plugins registered, and what is for
everybody: registered by an installed package's entry point, or while no plugin was loaded.
"""

from __future__ import annotations

import glob
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeVar

from lemming.kernel.base.errors import ConfigError
from lemming.kernel.base.redaction.secrets import redact
from lemming.kernel.plugins.errors import place_of, words_of

PLUGIN_GROUP = "lemming.plugins"
MARK = "__lemming_tool__"
"""What `@tool` puts on a function (`lemming.kernel.tools.declared`)."""
EVERYBODY = ""
"""Stands in the place of a plugin's name for what every organisation has."""

Kind = Literal["tool", "provider", "strategy", "check", "capability", "observer"]
V = TypeVar("V")


@dataclass(frozen=True)
class Registration:
    """Something registered: the class behind it, as module and name, and the plugin that was being loaded."""

    kind: Kind
    name: str
    value: Any
    origin: tuple[str, str]
    plugin: str


_registrations: list[Registration] = []
_installed: list[str] = []  # the modules that installed packages offer
_offered: dict[tuple[Kind, tuple[str, ...] | None], Any] = {}  # made of the above, until it changes
_loading: ContextVar[str] = ContextVar("loading", default=EVERYBODY)
_collected: ContextVar[list[Registration] | None] = ContextVar("collected", default=None)


def register(kind: Kind, name: str, value: Any, *, defined_by: Any, shipped: Mapping[str, str]) -> None:
    """Add a thing, in the place of an earlier one of the same plugin; `defined_by` is its class.

    Raises `ValueError` for the name of one that ships.
    """
    new = Registration(kind, name, value, (defined_by.__module__, defined_by.__qualname__), _loading.get())
    if name in shipped:
        raise ValueError(
            f'{".".join(new.origin)} cannot be the {kind} "{name}": that name is taken by '
            f"{shipped[name].replace(':', '.')}, which ships; choose another name"
        )
    if (collected := _collected.get()) is not None:
        collected.append(new)
        return
    for index, known in enumerate(_registrations):
        is_reloaded = new.plugin == EVERYBODY and known.origin == new.origin
        if (known.kind, known.name) == (kind, name) and (known.plugin == new.plugin or is_reloaded):
            _registrations[index] = replace(new, plugin=known.plugin)
            break
    else:
        _registrations.append(new)
    _offered.clear()


def registered_by(load: Callable[[], object]) -> list[Registration]:
    """Return what is registered while `load` runs, which is for nobody but the caller."""
    found: list[Registration] = []
    token = _collected.set(found)
    try:
        load()
    finally:
        _collected.reset(token)
    return found


def unregister(kind: Kind, name: str) -> None:
    """Take away what is registered under a name, by whomever."""
    _registrations[:] = [known for known in _registrations if (known.kind, known.name) != (kind, name)]
    _offered.clear()


def names_from(kind: Kind, module: str) -> list[str]:
    """Return the names of what a module registered, or a package that it is in, whoever names that."""
    return [
        it.name for it in _registrations if it.kind == kind and f"{module}.".startswith(f"{it.origin[0]}.")
    ]


def offered(kind: Kind, plugins: tuple[str, ...] | None, make: Callable[[Mapping[str, Any]], V]) -> V:
    """Return what an organisation that names these plugins has, as `make` makes it of what is registered.

    None stands for all plugins there are. It is the very same value as long as nothing else is registered.
    """
    known: V | None = _offered.get((kind, plugins))
    if known is None:
        _offered[kind, plugins] = known = make(_registered(kind, plugins))
    return known


def _registered(kind: Kind, plugins: tuple[str, ...] | None) -> dict[str, Any]:
    """Return what is registered by name. An organisation's own plugins come before what is for everybody."""
    if plugins is None:
        return {known.name: known.value for known in _registrations if known.kind == kind}
    installed = _modules_behind(_installed)
    for_all = [it for it in _registrations if it.plugin == EVERYBODY or it.origin[0] in installed]
    return {it.name: it.value for it in (*for_all, *_of_plugins(plugins)) if it.kind == kind}


def not_imported(modules: Sequence[str]) -> list[str]:
    """Return the plugins that this process has not imported: what they would bring is not known."""
    return [name for name in modules if name not in sys.modules]


# What raises is not kept: a plugin that somebody mends is imported as the next tick begins.
@cache
def load_plugins(modules: tuple[str, ...]) -> None:
    """Import the modules an organisation names; once is enough for a process.

    Raises `ConfigError` that names the module and what went wrong in it.
    """
    for name in modules:
        _import(name, name, partial(import_module, name), name)
    first: dict[tuple[Kind, str], Registration] = {}
    for known in _of_plugins(modules):
        other = first.setdefault((known.kind, known.name), known)
        if other is not known:
            who = f"{'.'.join(other.origin)} and {'.'.join(known.origin)}"
            message = f'plugins: {who} both register the {known.kind} "{known.name}"'
            hint = "give one of them another name, or take its module out of `plugins`"
            raise ConfigError(message, where="config/org.json", hint=hint)


@cache
def load_installed_plugins() -> None:
    """Load what installed packages offer under `lemming.plugins`; done before the first turn, as it is slow.

    Raises `ConfigError` that names the entry point and what went wrong in it.
    """
    if not _are_offered():
        return
    from importlib.metadata import entry_points

    for entry_point in entry_points(group=PLUGIN_GROUP):
        _installed.append(entry_point.module)
        _import(f"entry point {entry_point.name}", EVERYBODY, entry_point.load, entry_point.module)


def _are_offered() -> bool:
    """Return whether an installed package may offer plugins: most often none does, and asking imports much.

    Format: packaging.python.org, "Entry points specification". An archive on the path may hold anything.
    """
    folders = [folder or "." for folder in sys.path]
    offers = (
        file
        for folder in folders
        for kind in ("dist", "egg")
        for file in glob.iglob(f"{glob.escape(folder)}/*.{kind}-info/entry_points.txt")
    )
    return any(map(os.path.isfile, folders)) or any(PLUGIN_GROUP in Path(file).read_text() for file in offers)


def _of_plugins(plugins: Sequence[str]) -> list[Registration]:
    """Return what these plugins registered, or would have, had another not imported the same modules."""
    behind = _modules_behind(plugins)
    return [
        known
        for known in _registrations
        if known.plugin != EVERYBODY and (known.plugin in plugins or known.origin[0] in behind)
    ]


def _modules_behind(names: Iterable[str]) -> set[str]:
    """Return modules by name, with the packages they are in and the modules that they took something from."""
    found: set[str] = set()
    for name in names:
        parts = name.split(".")
        found.update(".".join(parts[: count + 1]) for count in range(len(parts)))
        for value in list(vars(sys.modules[name]).values()) if name in sys.modules else ():
            module = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
            if isinstance(module, str):
                found.add(module)
    return found


def _import(name: str, plugin: str, load: Callable[[], Any], module: str) -> None:
    token = _loading.set(plugin)
    try:
        load()
        _register_functions(module)
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        message = f"plugin {name} cannot be imported: {words_of(error)}"
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            hint = "put it on the Python path (PYTHONPATH=. for a file here), or take it out of `plugins`"
        else:
            message += f", raised at {place_of(error)}"
            hint = "mend it there, or take it out of `plugins`"
        raise ConfigError(redact(message), where="config/org.json", hint=hint) from error
    finally:
        _loading.reset(token)
        _offered.clear()


def _register_functions(module: str) -> None:
    """Register the functions with `@tool` of a module, with those that it took from its own package."""
    top = module.partition(".")[0]
    for thing in list(vars(sys.modules[module]).values()) if module in sys.modules else ():
        said = vars(thing).get(MARK) if inspect.isfunction(thing) else None
        if said is not None and thing.__module__.partition(".")[0] == top:
            said.register(thing)
