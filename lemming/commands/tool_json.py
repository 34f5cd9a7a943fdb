"""Tools and results of calls as the objects printed by `--json`."""

from __future__ import annotations

from typing import Any

from lemming.kernel.base.errors import OUTCOME_CODES
from lemming.kernel.tools import SHIPPED, Tool, ToolResult


def format_origin(tool: Tool) -> str:
    """Return the place where a tool comes from."""
    return "LeMMing" if tool.name in SHIPPED else tool.origin


def tool_to_json(tool: Tool, callers: list[str]) -> dict[str, Any]:
    """Convert a tool to the object printed by `--json`. `callers`: the agents that may call it."""
    return {
        "tool": tool.name,
        "class": tool.tool_class,
        "description": tool.description,
        "from": format_origin(tool),
        "repeatable": tool.repeatable,
        "parallel": tool.parallel,
        "timeout_s": tool.timeout_s,
        "parameters": tool.parameters,
        "agents": callers,
    }


def result_to_json(name: str, result: ToolResult) -> dict[str, Any]:
    """Convert the result of a call to the object printed by `--json`."""
    return {
        "tool": name,
        "success": result.success,
        "outcome": result.outcome,
        "code": OUTCOME_CODES[result.outcome],
        "output": result.output,
        "files": [effect.path_key for effect in result.effects],
        "entries": [entry._asdict() for entry in result.entries],
        "attempts": result.attempts,
    }
