"""Which tools only tell the engine what to write, so that it is known before anything is done."""

from __future__ import annotations

from typing import TypeGuard

from lemming.tools import EngineTool, Tool

PLANNED_CLASSES = frozenset({"write", "administer"})
"""Classes of tools of the engine whose planning changes nothing, and tells what a call would change."""


def is_planned(tool: Tool) -> TypeGuard[EngineTool]:
    """Return whether a call of a tool only tells the engine what to write: making it changes nothing yet.

    A tool of the engine that asks a server is none of these: what it asks has left the house.
    """
    return isinstance(tool, EngineTool) and tool.tool_class in PLANNED_CLASSES
