"""Where a function is found again in another process: in a file of the organisation, or in a module."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NamedTuple


class Home(NamedTuple):
    """A function's place: a module by name, which may be that of a file relative to the organisation."""

    module: str
    qualname: str
    file: str = ""

    @property
    def can_be_found(self) -> bool:
        """Whether the function stands at the top of its module, or in a class there."""
        return "<locals>" not in self.qualname


def home_of(function: Callable[..., Any]) -> Home | None:
    """Return where a module has a function; None when nobody else could import it from there."""
    module, qualname = function.__module__, function.__qualname__
    home = Home(module, qualname)
    return home if home.can_be_found and module != "__main__" and _can_be_imported(module) else None


def attribute_of(module: Any, qualname: str) -> Any:
    """Return what stands in a module under a qualified name. Raises `AttributeError`."""
    found = module
    for part in qualname.split("."):
        found = getattr(found, part)
    return found


def place_in_code(function: Callable[..., Any], base: Path | None) -> str:
    """Return `file:line` of a function; the file is relative to the organisation where it lies in it."""
    code = function.__code__
    file = Path(code.co_filename)
    if base is not None and file.is_relative_to(base):
        file = file.relative_to(base)
    return f"{file}:{code.co_firstlineno}"


def _can_be_imported(module: str) -> bool:
    """Return whether an import by this name would find the very file that the module is from."""
    path: Any = None
    parts = module.split(".")
    origin = None
    for count in range(len(parts)):
        spec = PathFinder.find_spec(".".join(parts[: count + 1]), path)
        if spec is None:
            return False
        path, origin = spec.submodule_search_locations, spec.origin
    return origin is not None and origin == getattr(sys.modules.get(module), "__file__", None)
