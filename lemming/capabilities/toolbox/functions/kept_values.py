"""Whether the calls of a function may depend on what an earlier call of the same reply keeps."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Collection
from typing import Any

INDEPENDENT = frozenset(
    (
        "agent",
        "base",
        "began_at",
        "call_id",
        "emit",
        "idempotency_key",
        "index",
        "limit_s",
        "log",
        "now",
        "place",
        "settings",
        "stop",
        "tick",
        "tool",
        "workspace",
    )
)
"""What a `ToolContext` says that no other call of a reply changes."""


def may_share_values(function: Callable[..., Any], contexts: Collection[str]) -> bool:
    """Return False where a function's code shows that it takes nothing which another of its calls changes.

    `contexts`: its parameters that get the `ToolContext`. One that hands it on, or whose code is not to be
    read, may take its state.
    """
    if not contexts:
        return False
    if hasattr(function, "__wrapped__"):  # the code that would be read is another function's
        return True
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return True
    harmless = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in INDEPENDENT and isinstance(node.ctx, ast.Load)
    }
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in contexts)
    return any(id(node) not in harmless for node in names)
