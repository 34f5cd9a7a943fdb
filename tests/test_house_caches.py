"""What a cache hands out cannot be changed by whoever asked: its type says so, which `mypy` holds to.

A cache is a function that remembers what it returned, or a class of which an organisation keeps one value
(`org.get_cache(Class)`). Its users share one value, for as long as the process runs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from package import TREES, calls, nodes

CHANGEABLE = re.compile(r"(dict|list|set|defaultdict|Counter)\b")
READ_ONLY = "return Mapping, Sequence, Set, frozenset or tuple"


def kept_classes() -> set[str]:
    """Return the names of classes of which an organisation, or a look at one, keeps a value."""
    found = (call for name in TREES for what, call in calls(name) if what.endswith("org.get_cache") and call.args)
    return {call.args[0].id for call in found if isinstance(call.args[0], ast.Name)}


def handed_out(name: str, kept: set[str]) -> Iterator[tuple[str, ast.expr]]:
    """Yield what a file's caches hand out: whose it is, and the type."""
    for node in nodes(name):
        if isinstance(node, ast.ClassDef) and node.name in kept:
            public = (it for it in node.body if isinstance(it, ast.FunctionDef) and it.name[0] != "_")
            yield from ((f"{name} {node.name}.{it.name}", it.returns) for it in public if it.returns)
        elif isinstance(node, ast.FunctionDef) and node.returns and is_cached(node):
            yield f"{name} {node.name}", node.returns


def is_cached(function: ast.FunctionDef) -> bool:
    return any(re.match(r"(functools\.)?(lru_)?cache\b", ast.unparse(it)) for it in function.decorator_list)


def test_what_a_cache_hands_out_has_a_type_that_nobody_may_change() -> None:
    kept = kept_classes()
    found = [
        f"{whose} returns {ast.unparse(type_)}: {READ_ONLY}"
        for name in TREES
        for whose, type_ in handed_out(name, kept)
        if CHANGEABLE.match(ast.unparse(type_))
    ]
    assert found == []
