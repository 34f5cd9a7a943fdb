"""Plugins: modules named by an organisation, and their registrations of tools, providers and strategies.

A process imports a module once, and stores its registrations with the name of the loading plugin. The items
of an organisation are derived from these: shipped items, registrations of its plugins, and registrations for
everybody, from an installed package's entry point or made while no plugin was loading.
"""

from __future__ import annotations

import glob
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeVar

from lemming.kernel.base.errors import ConfigError
from lemming.kernel.base.redaction.secrets import redact
from lemming.kernel.plugins.provider_errors import describe_exception, locate_error

PLUGIN_GROUP = "lemming.plugins"
MARK = "__lemming_tool__"
"""The attribute that `@tool` sets on a function (`lemming.libraries.tool_decorator`)."""
EVERYBODY = ""
"""Stands for a plugin's name for items of every organisation."""

Kind = Literal["tool", "provider", "strategy", "check", "capability", "observer", "command", "fact"]
V = TypeVar("V")


@dataclass(frozen=True)
class Registration:
    """A registered item: its class as module and name, and the plugin that was loading."""

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
    """Add an item, replacing an earlier item of the same plugin. Raises `ValueError` for the name of a shipped item."""
    new = Registration(kind, name, value, (defined_by.__module__, defined_by.__qualname__), _loading.get())
    if name in shipped:
        raise ValueError(
            f'{".".join(new.origin)} cannot be the {kind} "{name}": that name is taken by '
            f"{shipped[name].replace(':', '.')}, which ships; choose another name"
        )
    if (collected := _collected.get()) is not None:
        collected.append(new)
        return
    for index, registration in enumerate(_registrations):
        is_reloaded = new.plugin == EVERYBODY and registration.origin == new.origin
        if (registration.kind, registration.name) == (kind, name) and (
            registration.plugin == new.plugin or is_reloaded
        ):
            if kind == "capability" and new.plugin != EVERYBODY and registration.origin != new.origin:
                raise ValueError(
                    f'{".".join(new.origin)} cannot be the {kind} "{name}": {".".join(registration.origin)} of the same '
                    "plugin has that name; choose another name"
                )
            _registrations[index] = replace(new, plugin=registration.plugin)
            break
    else:
        _registrations.append(new)
    _offered.clear()


def capture_registrations(load: Callable[[], object]) -> list[Registration]:
    """Return the registrations made while `load` runs, visible to the caller only."""
    registrations: list[Registration] = []
    token = _collected.set(registrations)
    try:
        load()
    finally:
        _collected.reset(token)
    return registrations


def unregister(kind: Kind, name: str) -> None:
    """Remove all registrations of a name, from any plugin."""
    _registrations[:] = [
        registration for registration in _registrations if (registration.kind, registration.name) != (kind, name)
    ]
    _offered.clear()


def module_registrations(kind: Kind, module: str) -> list[str]:
    """Return the names registered by a module or by its package, for any organisation."""
    return [
        registration.name
        for registration in _registrations
        if registration.kind == kind and f"{module}.".startswith(f"{registration.origin[0]}.")
    ]


def collect_items(kind: Kind, plugins: tuple[str, ...] | None, make: Callable[[Mapping[str, Any]], V]) -> V:
    """Return the items of an organisation with the plugins, as built by `make` from registrations.

    None stands for all plugins. The same object is returned until another item is registered.
    """
    cached: V | None = _offered.get((kind, plugins))
    if cached is None:
        visible = _registrations
        if plugins is not None:  # these take precedence over registrations for everybody
            installed = _related_modules(_installed)
            for_all = (item for item in _registrations if item.plugin == EVERYBODY or item.origin[0] in installed)
            visible = [*for_all, *_plugin_registrations(plugins)]
        _offered[kind, plugins] = cached = make({item.name: item.value for item in visible if item.kind == kind})
    return cached


def find_unimported(modules: Sequence[str]) -> list[str]:
    """Return the plugins that this process has not imported; their registrations are unknown."""
    return [name for name in modules if name not in sys.modules]


# A failed import is not cached: a repaired plugin is imported at the next tick.
@cache
def load_plugins(modules: tuple[str, ...]) -> None:
    """Import the modules named by an organisation, once per process. Raises `ConfigError` with module and error."""
    for name in modules:
        _import_plugin(name, name, partial(import_module, name), name)
    first: dict[tuple[Kind, str], Registration] = {}
    for registration in _plugin_registrations(modules):
        first_registration = first.setdefault((registration.kind, registration.name), registration)
        if first_registration is not registration:
            origins = f"{'.'.join(first_registration.origin)} and {'.'.join(registration.origin)}"
            message = f'plugins: {origins} both register the {registration.kind} "{registration.name}"'
            hint = "rename one of them, or remove its module from `plugins`"
            raise ConfigError(message, where="config/org.json", hint=hint)


@cache
def load_installed_plugins() -> None:
    """Load the plugins of installed packages under `lemming.plugins`, once and before the first turn.

    Raises `ConfigError` with the failing entry point and its error.
    """
    if not _has_entry_points():
        return
    from importlib.metadata import entry_points

    for entry_point in entry_points(group=PLUGIN_GROUP):
        _installed.append(entry_point.module)
        _import_plugin(f"entry point {entry_point.name}", EVERYBODY, entry_point.load, entry_point.module)


def _has_entry_points() -> bool:
    """Return False if certainly no installed package has plugins; the full check needs a slow import.

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


def _plugin_registrations(plugins: Sequence[str]) -> list[Registration]:
    """Return the registrations of the plugins, including modules first imported by another plugin."""
    related = _related_modules(plugins)
    return [
        registration
        for registration in _registrations
        if registration.plugin != EVERYBODY and (registration.plugin in plugins or registration.origin[0] in related)
    ]


def _related_modules(names: Iterable[str]) -> set[str]:
    """Return module names with their packages, and the modules they import names from."""
    module_names: set[str] = set()
    for name in names:
        parts = name.split(".")
        module_names.update(".".join(parts[: count + 1]) for count in range(len(parts)))
        for value in list(vars(sys.modules[name]).values()) if name in sys.modules else ():
            module = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
            if isinstance(module, str):
                module_names.add(module)
    return module_names


def _import_plugin(name: str, plugin: str, load: Callable[[], Any], module: str) -> None:
    token = _loading.set(plugin)
    try:
        load()
        # `@tool` functions of the module, and those that it imports from its own package.
        top = module.partition(".")[0]
        for value in list(vars(sys.modules[module]).values()) if module in sys.modules else ():
            declaration = vars(value).get(MARK) if inspect.isfunction(value) else None
            if declaration is not None and value.__module__.partition(".")[0] == top:
                declaration.register(value)
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        message = f"plugin {name} cannot be imported: {describe_exception(error)}"
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            hint = "put it on the Python path (PYTHONPATH=. for a file here), or remove it from `plugins`"
        else:
            message += f", raised at {locate_error(error)}"
            hint = "fix it there, or remove it from `plugins`"
        raise ConfigError(redact(message), where="config/org.json", hint=hint) from error
    finally:
        _loading.reset(token)
        _offered.clear()


T = TypeVar("T")


class Catalogue(Mapping[str, T]):
    """Tools or providers of an organisation by name, sorted; shipped ones are imported on first access.

    `shipped` holds import paths ("module:name"); `make` converts an imported object into a value.
    """

    def __init__(self, shipped: Mapping[str, str], registered: Mapping[str, T], make: Callable[[Any], T]) -> None:
        self._shipped, self._make = shipped, make
        self.registered = registered
        self._loaded = {**registered}
        self._names = sorted({*shipped, *registered})

    def __getitem__(self, name: str) -> T:
        if name not in self._loaded:
            module, _, attribute = self._shipped[name].partition(":")
            self._loaded[name] = self._make(getattr(import_module(module), attribute))
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._loaded or name in self._shipped

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
