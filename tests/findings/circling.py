"""Organisations in which something goes wrong, turn by turn: what the tests of findings share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lemming.engine import run_once
from lemming.kernel.base.errors import Problem
from lemming.kernel.tools import Tool, ToolRegistry, ToolResult
from lemming.queries.findings.finding_rules import find_findings
from lemming.testing import FrozenClock, make_org, resume, say

NOTHING: dict[str, Any] = {"outbox_entries": [], "tool_calls": [], "memory_updates": [], "notes": ""}
PEOPLE = {"human": {"provider": "human"}}


class Gauge(Tool):
    """Gives the same at every look, or another number at each."""

    name = "read_gauge"
    description = "Reads a gauge."
    looks = 0

    def execute(self, agent_name: str, base_path: Path, *, moves: bool) -> ToolResult:
        """Return what the gauge shows."""
        Gauge.looks += moves
        return ToolResult(True, f"{Gauge.looks}" if moves else "12 bar")


ToolRegistry.register(Gauge())


def person(name: str = "human") -> dict[str, Any]:
    """Return the resume of a person."""
    return resume(name, model={"key": "human"})


def calls(tool: str, **args: Any) -> dict[str, Any]:
    """Return a reply that calls a tool and says nothing."""
    return {**NOTHING, "tool_calls": [{"tool": tool, "args": args}]}


def tells(to: str, text: str, **payload: Any) -> dict[str, Any]:
    """Return a reply with one entry for somebody."""
    entry = {"kind": "message", "payload": {"text": text, "target": to, **payload}, "tags": []}
    return {**NOTHING, "outbox_entries": [entry]}


def org_of(base: Path, *resumes: dict[str, Any], script: list[dict[str, Any]], **findings: Any) -> Path:
    """Make an organisation of these agents; `findings` are its settings for what is found."""
    settings = {"durability": "off", "findings": findings}
    return make_org(base, *resumes, script=script, models=PEOPLE, org=settings)


def run(base: Path, ticks: int) -> None:
    """Run so many ticks."""
    for _ in range(ticks):
        run_once(base, clock=FrozenClock())


def found_in(base: Path, ticks: int = 0) -> list[Problem]:
    """Run so many ticks, and return what is found then."""
    run(base, ticks)
    return find_findings(base)


def kinds(found: list[Problem]) -> list[str]:
    """Return the kinds of what was found."""
    return [finding.kind for finding in found]


def by_ticks(agent: str, *texts: str) -> list[dict[str, Any]]:
    """Return a script in which an agent says these, one in each tick from the first."""
    return [{"agent": agent, "tick": tick, "reply": say(text)} for tick, text in enumerate(texts, 1)]
