"""Many tools that ship with nobody: an agent has them by a pattern, and finds them by a search."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lemming.kernel.tools import Tool, ToolRegistry, ToolResult

ABOUTS = {
    "desk.create_issue": "Open a new issue in a repository.",
    "desk.closeIssue": "Close one.",
    "desk.list_issues": "List the issues of a repository.",
    "post.send_letter": "Send a letter by post.",
    "post.track": "Say where a parcel is.",
}
FILLERS = 60


class Said(Tool):
    """A tool that says its own name and what it was given."""

    tool_class = "read"
    repeatable = True
    is_independent = True

    def __init__(self, name: str, description: str, properties: dict[str, Any]) -> None:
        self.name, self.description, self._properties = name, description, properties

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON Schema of the arguments, with what servers write into theirs."""
        return {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "title": f"{self.name}Arguments",
            "type": "object",
            "properties": self._properties,
            "additionalProperties": False,
        }

    def execute(self, agent_name: str, base_path: Path, **arguments: Any) -> ToolResult:
        """Say it."""
        return ToolResult(True, f"{self.name} of {sorted(arguments.items())}")


def many_tools() -> list[Tool]:
    """Return new tools: five that do something, and many that fill the list."""
    subject = {"subject": {"type": "string", "title": "Subject", "description": "What it is about."}}
    wanted: list[Tool] = [Said(name, about, subject) for name, about in ABOUTS.items()]
    filler = {"level": {"type": "integer", "title": "Level"}}
    return [*wanted, *(Said(f"tank.fill_{n}", f"Fill tank {n} up to a level.", filler) for n in range(FILLERS))]


@contextmanager
def registered(tools: list[Tool] | None = None) -> Iterator[list[Tool]]:
    """Have the process know these tools, by default the many, while the block runs."""
    tools = many_tools() if tools is None else tools
    for tool in tools:
        ToolRegistry.register(tool)
    try:
        yield tools
    finally:
        for tool in tools:
            ToolRegistry.unregister(tool.name)
