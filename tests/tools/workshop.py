"""An organisation with files of tools, and ways to call them: at the edge of a call, or in ticks."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from lemming.engine import run_once
from lemming.kernel.agents import load_agent
from lemming.kernel.base.clock import Clock
from lemming.kernel.journal.turn_report import TickReport
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tools import ToolResult, get_toolset
from lemming.kernel.tools.tool_call import call_tool
from lemming.kernel.tools.tool_context import ToolContext
from lemming.kernel.tools.toolset import Toolset
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say

NOW = "2026-01-01T00:00:00.000Z"
HEADER = """\
from __future__ import annotations
import os, sys, time
from lemming.tools import RecoverableError, ToolContext, ToolResult, tool
"""
FILES = ["tools/*.py", "agents/*/tools/*.py"]


class Workshop:
    """One organisation; `ada` may call all that there is unless told otherwise."""

    def __init__(self, base: Path, *, tools: list[str] | None = None, **org: Any) -> None:
        self.base, self.settings = base, {"tool_files": FILES, **org}
        self.permissions = {"tools": ["*"] if tools is None else tools, "read_outboxes": []}
        make_org(base, self.resume(), script=[], org=self.settings)
        self.org = Organisation(base)

    def resume(self, name: str = "ada", **more: Any) -> dict[str, Any]:
        return resume(name, **{"permissions": self.permissions, **more})

    def file(self, code: str, file: str = "tools/mine.py", *, header: str = HEADER) -> Path:
        """Write a file of tools."""
        path = self.base / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(header + textwrap.dedent(code))
        return path

    @property
    def toolset(self) -> Toolset:
        return get_toolset(load_config(self.org).org, self.org)

    def call(self, name: str, /, **arguments: Any) -> ToolResult:
        """Call a tool as `ada`, and write nothing of what it wants."""
        return self.call_with(name, arguments)

    def call_with(self, name: str, arguments: Any, *, who: str = "ada", **context: Any) -> ToolResult:
        settings = load_config(self.org).org
        agent = load_agent(self.org, who)
        about: dict[str, Any] = {"now": NOW, "tick": 7, **context}
        return call_tool(name, arguments, ToolContext(agent=agent, org=self.org, settings=settings, **about))

    def run(self, *calls: dict[str, Any], clock: Clock | None = None, **more: Any) -> TickReport:
        """Run a tick in which `ada` makes these calls."""
        script = [{"agent": "ada", "reply": say("working", tool_calls=list(calls))}]
        make_org(self.base, self.resume(**more), script=script, org=self.settings)
        return run_once(self.base, clock=clock or FrozenClock())

    def finished(self, tick: int = 1) -> list[dict[str, Any]]:
        """Return the records of calls that are over."""
        return [line for line in journal_lines(self.base, tick) if line["type"] == "tool_finished"]


def call(tool: str, /, **arguments: Any) -> dict[str, Any]:
    """Return a call as a reply has it."""
    return {"tool": tool, "args": arguments}
