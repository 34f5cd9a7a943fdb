"""Plugins: modules an organisation names, and what they register for it: tools, providers.

What a plugin registers belongs to the organisations that name it in `config/org.json` `plugins`, though a
process imports it once. What is registered while no plugin is loaded, or by an installed package's entry
point, is for every organisation of the process. Nothing that ships can be replaced.
"""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from lemming.errors import ConfigError
from lemming.plugins.errors import place_of, words_of
from lemming.redaction import redact

PLUGIN_GROUP = "lemming.plugins"
EVERYBODY = ""
"""Stands in the place of a plugin's name for what every organisation has."""

T = TypeVar("T")

_loading: ContextVar[str] = ContextVar("loading", default=EVERYBODY)


@dataclass
class _Registered(Generic[T]):
    """Something registered: where it is defined, and the plugins it came with."""

    value: T
    origin: tuple[str, str]
    plugins: set[str]


class Registry(Generic[T]):
    """Things by name: those that ship (`shipped`: "module:name", loaded when needed), and registered ones.

    Organisations are told by the plugins they name; None stands for all plugins there are. `make` turns what
    a shipped name stands for into the thing.
    """

    def __init__(self, what: str, shipped: Mapping[str, str], make: Callable[[Any], T]) -> None:
        self._what, self._shipped, self._make = what, shipped, make
        self._loaded: dict[str, T] = {}
        self._registered: dict[str, list[_Registered[T]]] = {}
        self._seen: dict[tuple[str, ...] | None, dict[str, T]] = {}
        self._all: dict[tuple[str, ...] | None, dict[str, T]] = {}
        _registries.append(self)

    def register(self, name: str, value: T, defined_by: type) -> None:
        """Add a thing, in the place of an earlier one of the same plugin; `defined_by` is its class.

        Raises `ValueError` for the name of one that ships.
        """
        origin = defined_by.__module__, defined_by.__qualname__
        if name in self._shipped:
            raise ValueError(
                f'{".".join(origin)} cannot be the {self._what} "{name}": that name is taken by '
                f"{self._shipped[name].replace(':', '.')}, which ships; choose another name"
            )
        present, plugin = self._registered.setdefault(name, []), _loading.get()
        for known in present:  # a module that is imported anew belongs to whom it belonged
            if plugin in known.plugins or (plugin == EVERYBODY and known.origin == origin):
                known.value, known.origin = value, origin
                break
        else:
            present.append(_Registered(value, origin, {plugin}))
        self.forget()

    def pop(self, name: str) -> None:
        """Take away what is registered under a name, by whomever."""
        self._registered.pop(name, None)
        self.forget()

    def claim(self, plugin: str, modules: set[str]) -> None:
        """Let a plugin have what these modules, which it imported, have registered already."""
        for known in (known for present in self._registered.values() for known in present):
            if known.origin[0] in modules and EVERYBODY not in known.plugins:
                known.plugins.add(plugin)
        self.forget()

    def forget(self) -> None:
        """Look again at who has what."""
        self._seen.clear()
        self._all.clear()

    def names(self, plugins: Sequence[str] | None = None) -> list[str]:
        """Return the names an organisation may use, sorted."""
        return sorted({*self._shipped, *self._visible(_key(plugins))})

    def find(self, name: str, plugins: Sequence[str] | None = None) -> T | None:
        """Return what an organisation has under a name; None when there is nothing."""
        if name in self._shipped:
            if name not in self._loaded:
                module, _, attribute = self._shipped[name].partition(":")
                self._loaded[name] = self._make(getattr(import_module(module), attribute))
            return self._loaded[name]
        return self._visible(_key(plugins)).get(name)

    def all(self, plugins: Sequence[str] | None = None) -> Mapping[str, T]:
        """Return all that an organisation has, by name, sorted: the same value as long as nothing changes."""
        key = _key(plugins)
        if key not in self._all:
            found = ((name, self.find(name, plugins)) for name in self.names(plugins))
            self._all[key] = {name: value for name, value in found if value is not None}
        return self._all[key]

    def conflict(self, plugins: Sequence[str]) -> str:
        """Return which two plugins of an organisation have something under one name; empty when none do."""
        for name, present in self._registered.items():
            theirs = [known for known in present if known.plugins & {*plugins}]
            if len(theirs) > 1:
                who = " and ".join(".".join(known.origin) for known in theirs)
                return f'{who} both register the {self._what} "{name}"'
        return ""

    def _visible(self, key: tuple[str, ...] | None) -> dict[str, T]:
        if key not in self._seen:
            self._seen[key] = {
                name: chosen[-1].value
                for name, present in self._registered.items()
                if (chosen := _chosen(present, key))
            }
        return self._seen[key]


_registries: list[Registry[Any]] = []


def _key(plugins: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if plugins is None else tuple(plugins)


def _chosen(present: list[_Registered[T]], plugins: tuple[str, ...] | None) -> list[_Registered[T]]:
    """Return what an organisation may use of the things of one name, its own plugins' last."""
    if plugins is None:
        return present
    for_all = [known for known in present if EVERYBODY in known.plugins]
    return for_all + [known for known in present if known.plugins & {*plugins}]


def not_imported(modules: Sequence[str]) -> list[str]:
    """Return the plugins that this process has not imported: what they would bring is not known."""
    return [name for name in modules if name not in sys.modules]


@cache
def load_plugins(modules: tuple[str, ...]) -> None:
    """Import the modules an organisation names; once is enough for a process.

    Raises `ConfigError` that names the module and what went wrong in it.
    """
    for name in modules:
        _claim(name, _import(name, name, partial(import_module, name)))
    for registry in _registries:
        if conflict := registry.conflict(modules):
            hint = "give one of them another name, or take its module out of `plugins`"
            raise ConfigError(f"plugins: {conflict}", where="config/org.json", hint=hint)


@cache
def load_installed_plugins() -> None:
    """Load what installed packages offer under `lemming.plugins`; done before the first turn, as it is slow.

    Raises `ConfigError` that names the entry point and what went wrong in it.
    """
    if not _are_offered():
        return
    from importlib.metadata import entry_points

    for entry_point in entry_points(group=PLUGIN_GROUP):
        _import(f"entry point {entry_point.name}", EVERYBODY, entry_point.load)
        _claim(EVERYBODY, import_module(entry_point.module))


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


def _claim(plugin: str, module: ModuleType) -> None:
    """Let a plugin have what it would have registered, had an earlier one not imported the same modules."""
    parts = module.__name__.split(".")
    modules = {".".join(parts[: count + 1]) for count in range(len(parts))}
    for value in list(vars(module).values()):
        name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        if isinstance(name, str):
            modules.add(name)
    for registry in _registries:
        registry.claim(plugin, modules)


def _import(name: str, plugin: str, load: Callable[[], Any]) -> Any:
    token = _loading.set(plugin)
    try:
        return load()
    except Exception as error:
        message = f"plugin {name} cannot be imported: {words_of(error)}"
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            hint = "put it on the Python path (PYTHONPATH=. for a file here), or take it out of `plugins`"
        else:
            message += f", raised at {place_of(error)}"
            hint = "mend it there, or take it out of `plugins`"
        raise ConfigError(redact(message), where="config/org.json", hint=hint) from error
    finally:
        _loading.reset(token)
