"""Old paths of public modules: each still works and warns once per process. Rules: docs/capabilities.md."""

from __future__ import annotations

from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from lemming.kernel.base.aliases import find_renamed, load_table, warn_once


class _OldModule(ModuleType):
    """Stand-in for a renamed module: passes each name on to the new module."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        new_module = import_module(_find_new_module(self.__name__))
        if hasattr(new_module, name):
            return getattr(new_module, name)
        return find_renamed(new_module.__name__, name)


class _OldModuleLoader:
    """Loader of the stand-in of a renamed module."""

    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType:
        return _OldModule(spec.name)

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        warn_once(module.__name__, _find_new_module(module.__name__), depth=1)


def find_old_module(name: str) -> ModuleSpec | None:
    """Return the spec of a renamed module's stand-in, or None for a module that was never renamed.

    Raises: ModuleNotFoundError with the new path of a module that was moved before 0.2.0.
    """
    if new_path := load_table()["moved"].get(name):
        raise ModuleNotFoundError(f"{name} is now {new_path}", name=name)
    if _find_new_module(name):
        return ModuleSpec(name, _OldModuleLoader, is_package=True)  # type: ignore[arg-type]
    return None


def _find_new_module(name: str) -> str:
    """Return the path of a module that had another one in 0.2.0, or an empty text."""
    table = load_table()
    if name in table["modules"]:
        return str(table["modules"][name])
    _, folder, *inner = name.split(".")
    new = ".".join(("lemming", "kernel", folder, *inner))
    return new if folder in table["kernel_folders"] and find_spec(new) else ""
