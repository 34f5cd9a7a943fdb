"""Import tool files as modules of a package for their folder, and locate functions for other processes.

This makes `from .other import x` work. Each organisation's folder has a package with a separate name; no
bytecode is written next to the files.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

PREFIX = "lemming_tools_"
_SOURCES = "__lemming_sources__"

Sources = Mapping[str, bytes]
"""Contents of the tool files and of the modules beside them, by absolute path."""


class _SourceLoader(SourceFileLoader):
    """Compiles the package's stored source of a file: never a `.pyc`, and never a version saved since."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        sources: Sources = vars(sys.modules[fullname.rpartition(".")[0]])[_SOURCES]
        return self.source_to_code(sources[path], path)


class _SourceFinder:
    """Finds modules of our packages among the stored sources only.

    Nobody has approved other files (subfolders, bytecode, libraries), and an agent may be able to write such files.
    """

    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec of a module in one of our packages, or None for other modules.

        Raises `ModuleNotFoundError` for a module without a source file next to the importing file.
        """
        package, _, name = fullname.rpartition(".")
        if not package.startswith(PREFIX) or not path:
            return None
        file = str(Path(list(path)[0], f"{name}.py"))  # noqa: RUF015 - a namespace's path is no list
        if file not in vars(sys.modules[package])[_SOURCES]:
            raise ModuleNotFoundError(f"{name}.py does not exist beside it; folders are not imported")
        return spec_from_file_location(fullname, file, loader=_SourceLoader(fullname, file))


def get_package_name(folder: Path) -> str:
    """Return the name of the package for a folder."""
    return f"{PREFIX}{sha256(str(folder.resolve()).encode()).hexdigest()[:16]}"


def unload(folders: Iterable[Path]) -> None:
    """Remove the modules of folders from `sys.modules`, to import the modules anew."""
    packages = {get_package_name(folder) for folder in folders}
    for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
        del sys.modules[name]


def load_module(file: Path, sources: Sources) -> ModuleType:
    """Return the module of a file, with its prints sent to standard error. Errors of the module pass through."""
    if _SourceFinder not in sys.meta_path:
        sys.meta_path.insert(0, _SourceFinder)
    package = get_package_name(file.parent)
    if package not in sys.modules:
        module = ModuleType(package, "A folder of tools.")
        module.__path__ = [str(file.parent)]
        setattr(module, _SOURCES, sources)
        sys.modules[package] = module
    with contextlib.redirect_stdout(sys.stderr):  # the engine's own output may be JSON
        return import_module(f"{package}.{file.stem}")


class FunctionLocation(NamedTuple):
    """The location of a function: a module name, or a file relative to the organisation, and a qualified name."""

    module: str
    qualname: str
    file: str = ""

    @property
    def is_importable(self) -> bool:
        """True if the function is defined at the top of its module, or in a class there."""
        return "<locals>" not in self.qualname


def find_location(function: Callable[..., Any]) -> FunctionLocation | None:
    """Return the location of a function, or None if another process could not import the function."""
    module, qualname = function.__module__, function.__qualname__
    location = FunctionLocation(module, qualname)
    return location if location.is_importable and module != "__main__" and _is_module_importable(module) else None


def get_attribute(module: Any, qualname: str) -> Any:
    """Return the attribute of a module under a qualified name. Raises `AttributeError`."""
    attribute = module
    for part in qualname.split("."):
        attribute = getattr(attribute, part)
    return attribute


def get_source_location(function: Callable[..., Any], base: Path | None) -> str:
    """Return `file:line` of a function, with the file relative to the organisation if possible."""
    code = function.__code__
    file = Path(code.co_filename)
    if base is not None and file.is_relative_to(base):
        file = file.relative_to(base)
    return f"{file}:{code.co_firstlineno}"


def _is_module_importable(module: str) -> bool:
    """Return True if an import by this name finds the file of the loaded module."""
    path: Any = None
    parts = module.split(".")
    origin = None
    for count in range(len(parts)):
        # not `find_spec`, which imports the packages above it
        spec = PathFinder.find_spec(".".join(parts[: count + 1]), path)
        if spec is None:
            return False
        path, origin = spec.submodule_search_locations, spec.origin
    # a module of the same name that lies elsewhere would be another function there
    return origin is not None and origin == getattr(sys.modules.get(module), "__file__", None)
