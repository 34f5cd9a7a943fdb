"""Detect if calls of a function may depend on state saved by an earlier call of the same reply."""

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
        "resolve_path",
        "settings",
        "stop",
        "tick",
        "tool",
        "workspace",
    )
)
"""Fields of a `ToolContext` that no other call of the same reply changes."""


def can_share_state(function: Callable[..., Any], contexts: Collection[str]) -> bool:
    """Return False if a function's code provably uses no state changed by its other calls.

    `contexts`: the names of parameters receiving the `ToolContext`. A function may use such state if the
    context is passed on, or if the code cannot be read.
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
