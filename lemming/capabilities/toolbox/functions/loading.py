"""Where a function is found again, and importing a file of tools: a module of a package that is its folder.

So `from .other import x` works. Each organisation's folder is a package of its own name; no bytecode is
written beside the files.
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
"""What files hold, by absolute path: those of tools, and those beside them."""


class _Loader(SourceFileLoader):
    """Compiles what the package has of a file: never a `.pyc`, nor what somebody has saved since."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        sources: Sources = vars(sys.modules[fullname.rpartition(".")[0]])[_SOURCES]
        return self.source_to_code(sources[path], path)


class _Finder:
    """Finds the modules of our packages, among the sources that the package has, and nowhere else.

    What is not among them (a folder below, bytecode, a library) nobody has agreed to, and an agent may write.
    """

    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return where a module of such a package is; None for those of others.

        Raises `ModuleNotFoundError` for what is not a file beside the one that imports it.
        """
        package, _, name = fullname.rpartition(".")
        if not package.startswith(PREFIX) or not path:
            return None
        file = str(Path(list(path)[0], f"{name}.py"))  # noqa: RUF015 - a namespace's path is no list
        if file not in vars(sys.modules[package])[_SOURCES]:
            raise ModuleNotFoundError(f"there is no {name}.py beside it; of folders nothing is imported")
        return spec_from_file_location(fullname, file, loader=_Loader(fullname, file))


def package_of(folder: Path) -> str:
    """Return the name of the package that stands for a folder."""
    return f"{PREFIX}{sha256(str(folder.resolve()).encode()).hexdigest()[:16]}"


def forget(folders: Iterable[Path]) -> None:
    """Have the modules of these folders imported anew when they are next asked for."""
    packages = {package_of(folder) for folder in folders}
    for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
        del sys.modules[name]


def load(file: Path, sources: Sources) -> ModuleType:
    """Return the module that a file is; what it prints goes to standard error. Raises what it raises."""
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)
    package = package_of(file.parent)
    if package not in sys.modules:
        module = ModuleType(package, "A folder of tools.")
        module.__path__ = [str(file.parent)]
        setattr(module, _SOURCES, sources)
        sys.modules[package] = module
    with contextlib.redirect_stdout(sys.stderr):  # the engine's own output may be JSON
        return import_module(f"{package}.{file.stem}")


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
        # not `find_spec`, which imports the packages above it
        spec = PathFinder.find_spec(".".join(parts[: count + 1]), path)
        if spec is None:
            return False
        path, origin = spec.submodule_search_locations, spec.origin
    # a module of the same name that lies elsewhere would be another function there
    return origin is not None and origin == getattr(sys.modules.get(module), "__file__", None)
