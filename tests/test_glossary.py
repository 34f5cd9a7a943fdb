"""The glossary in docs/concepts.md: one meaning each, here and in the code."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from package import FILES, PACKAGE, nodes_of, parsed

REPOSITORY = PACKAGE.parent
CONCEPTS, _, GLOSSARY = (REPOSITORY / "docs/concepts.md").read_text("utf-8").partition("\n## Glossary\n")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")] for line in GLOSSARY.splitlines() if line.startswith("| **")
]
TERMS = [term for row in ROWS for cell in row for term in re.findall(r"\*\*([^*]+)\*\*", cell)]
OWN_NAMESPACES = ("lemming.commands", "lemming.capabilities.hosted_models")
"""Packages whose modules stand side by side, so that one name may be in several of them."""


class SharedType(NamedTuple):
    """A class without an underscore that another module of the package imports."""

    module: str
    name: str
    docstring: str


@cache
def modules() -> dict[str, Path]:
    """Return the file of each module of the package, by its dotted name."""
    return {
        ".".join(file.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__"): file
        for file in FILES.values()
    }


@cache
def shared_types() -> tuple[SharedType, ...]:
    """Return the classes that modules share."""
    imported = {
        (node.module, alias.name)
        for file in modules().values()
        for node in nodes_of(file)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    return tuple(
        SharedType(module, node.name, ast.get_docstring(node) or "")
        for module, file in modules().items()
        for node in parsed(file).body
        if isinstance(node, ast.ClassDef) and (module, node.name) in imported
    )


@cache
def defined_names() -> frozenset[str]:
    """Return the names of all modules, classes, functions, fields and type aliases of the package."""
    return frozenset(part for module in modules() for part in module.split(".")) | frozenset(_definitions())


def _definitions() -> Iterator[str]:
    for file in modules().values():
        for node in nodes_of(file):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.name
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                yield node.target.id
            elif isinstance(node, ast.Assign):
                yield from (target.id for target in node.targets if isinstance(target, ast.Name))


@cache
def other_text() -> str:
    """Return the text of all code, all other pages, and the page before the glossary, in lower case."""
    pages = [page for page in (REPOSITORY / "docs").glob("*.md") if page.name != "concepts.md"]
    files = [*PACKAGE.rglob("*.py"), *pages, REPOSITORY / "README.md"]
    return "\n".join((CONCEPTS.lower(), *(file.read_text("utf-8").lower() for file in files)))


def test_every_type_says_what_it_is() -> None:
    assert [f"{each.module}.{each.name}" for each in shared_types() if not each.docstring] == []


def test_no_two_types_have_one_name() -> None:
    names = Counter(each.name for each in shared_types() if not each.module.startswith(OWN_NAMESPACES))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("term", TERMS)
def test_every_term_of_the_glossary_is_used(term: str) -> None:
    assert re.search(rf"\b{term.lower().replace(' ', '[ _]?')}", other_text()), "it is explained and used nowhere"


def test_the_glossary_explains_a_term_once_and_in_order() -> None:
    first = [row[0].strip("*").lower() for row in ROWS]
    assert first == sorted(set(first))


def test_a_term_has_one_definition() -> None:
    counts = Counter(term.lower() for term in TERMS)
    assert [term for term, count in counts.items() if count > 1] == []


def test_every_term_names_the_field_that_it_comes_from() -> None:
    assert [row[0] for row in ROWS if not row[2]] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip("*"))
def test_the_code_has_what_the_glossary_names(row: list[str]) -> None:
    _, _, _, in_code = row
    assert [name for name in re.findall(r"`(\w+)`", in_code) if name not in defined_names()] == []
