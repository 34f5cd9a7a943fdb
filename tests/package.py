"""The package's modules as they are written, for the tests of how it is laid out."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "lemming"

FILES = {str(path.relative_to(PACKAGE)): path for path in sorted(PACKAGE.rglob("*.py"))}


class Trees(Mapping[str, ast.Module]):
    """The tree of each module, parsed when it is asked for: every worker collects what only one may run."""

    def __getitem__(self, name: str) -> ast.Module:
        return parsed(FILES[name])

    def __iter__(self) -> Iterator[str]:
        return (name for name, path in FILES.items() if "templates" not in path.parts)

    def __len__(self) -> int:
        return len(list(iter(self)))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


TREES = Trees()


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Return all that stands in a file; going through its tree takes far longer."""
    return tuple(ast.walk(parsed(path)))


def nodes(name: str) -> tuple[ast.AST, ...]:
    return nodes_of(FILES[name])


@cache
def calls(name: str) -> tuple[tuple[str, ast.Call], ...]:
    """Return every call in a file with the text of what is called."""
    found = (node for node in nodes(name) if isinstance(node, ast.Call))
    return tuple((ast.unparse(node.func), node) for node in found)


def module_of(name: str) -> str:
    """Return `a.b` for `a/b.py`, `a` for `a/__init__.py`, and an empty string for the package itself."""
    return name.removesuffix(".py").removesuffix("__init__").strip("/").replace("/", ".")


MODULES = {module_of(name) for name in TREES}


def room_of(module: str) -> str:
    """Return the folder of a module, or the module itself when it stands beside the folders.

    In the kernel and among the capabilities it is the folder within: `kernel/turn`, `capabilities/gates`.
    """
    room, _, rest = module.partition(".")
    return f"{room}/{rest.partition('.')[0]}" if room in ("kernel", "capabilities") and rest else room


@cache
def for_types_only(name: str) -> set[ast.AST]:
    """Return all that stands under `if TYPE_CHECKING:`."""
    blocks = (node for node in nodes(name) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
    return {inner for block in blocks for inner in ast.walk(block)}


@cache
def imports(name: str, *, types_only: bool = False, top_only: bool = False) -> frozenset[str]:
    """Return what a file imports, as full names of modules."""
    tree = TREES[name]
    typing_only = for_types_only(name)
    here = tree.body if top_only else nodes(name)
    return frozenset(full for node in here if (node in typing_only) == types_only for full in imported_by(node))


def imported_by(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.module is not None, "imports are absolute"
        for alias in node.names:
            full = f"{node.module}.{alias.name}"
            yield full if full.removeprefix("lemming.") in MODULES else node.module


def own_imports(name: str, *, types_only: bool = False, top_only: bool = False) -> set[str]:
    """Return the package's own modules that a file imports, without the package's name in front."""
    found = imports(name, types_only=types_only, top_only=top_only)
    return {full.removeprefix("lemming.") for full in found if full.startswith("lemming.")}
