"""An agent at its desk: a small organisation in a folder, and a way to call tools as one of its agents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lemming.kernel.agents import load_agent
from lemming.kernel.files.file_effects import apply_effect
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tools import Tool, ToolResult
from lemming.kernel.tools.tool_call import call_tool
from lemming.kernel.tools.tool_context import ToolContext

NOW = "2026-01-01T00:00:00.000Z"
ALL_TOOLS = ["file_read", "file_write", "file_list", "shell", "create_agent"]


class CustomTool(Tool):
    """The custom tool of the architecture guide, as printed there."""

    name = "custom_tool"
    description = "Does something custom"

    def execute(self, agent_name: str, base_path: Path, **kwargs: Any) -> ToolResult:
        """Return the guide's result."""
        return ToolResult(True, "Success")


class Desk:
    """The desk of one agent. What its calls stage is seen by its later calls, as within a turn."""

    def __init__(
        self,
        base: Path,
        *,
        name: str = "alpha",
        tools: list[str] | None = None,
        allow_read: list[str] | None = None,
        allow_write: list[str] | None = None,
        read_outboxes: list[str] | None = None,
        credits: dict[str, Any] | None = None,
        org: OrgSettings | None = None,
    ) -> None:
        self.base, self.name = base, name
        self.org = org or OrgSettings(create_agent_allowed=["alpha"])
        self.workspace = base / f"agents/{name}/workspace"
        self.workspace.mkdir(parents=True, exist_ok=True)
        self.staged: dict[str, bytes] = {}
        self.removed: set[str] = set()
        self.calls = 0
        resume = {
            "name": name,
            "title": f"The {name}",
            "instructions": "Work.",
            "credits": credits or {},
            "permissions": {
                "tools": ALL_TOOLS if tools is None else tools,
                "read_outboxes": read_outboxes or [],
                "file_access": {
                    "allow_read": ["./workspace", "./shared"] if allow_read is None else allow_read,
                    "allow_write": ["./workspace", "./shared"] if allow_write is None else allow_write,
                },
            },
        }
        self.write(f"agents/{name}/resume.json", json.dumps(resume))

    def write(self, relative: str, text: str) -> Path:
        """Put a file into the organisation, as a person would."""
        path = self.base / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def context(self) -> ToolContext:
        """Return what a tool is told about its caller."""
        agent = load_agent(self.base, self.name)
        return ToolContext(
            agent=agent,
            org=Organisation(self.base),
            settings=self.org,
            now=NOW,
            staged=self.staged,
            removed=frozenset(self.removed),
            index=self.calls,
        )

    def call(self, tool: str, /, **arguments: Any) -> ToolResult:
        """Call a tool; its effects are staged, not written."""
        result = call_tool(tool, arguments, self.context())
        self.calls += 1
        for effect in result.effects:
            if effect.removes:
                self.staged.pop(effect.path_key, None)
                self.removed.add(effect.path_key)
            else:
                self.staged[effect.path_key] = effect.content
                self.removed.discard(effect.path_key)
        return result

    def do(self, tool: str, /, **arguments: Any) -> str:
        """Call a tool that must succeed, write its effects, and return its output."""
        result = call_tool(tool, arguments, self.context())
        self.calls += 1
        assert result.success, result.output
        for effect in result.effects:
            apply_effect(self.base, effect)
        return result.output

    def refusal(self, tool: str, /, **arguments: Any) -> str:
        """Call a tool that must fail, and return why."""
        result = self.call(tool, **arguments)
        assert not result.success, result.output
        assert result.effects == ()
        return result.output
