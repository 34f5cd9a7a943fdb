"""The screen of an agent's memories."""

from __future__ import annotations

from typing import Any

from lemming.kernel.agents import require_agent_folder
from lemming.kernel.memory import load_memories
from lemming.kernel.org.organisation import OrgPath
from lemming.libraries.wording import to_text
from lemming.queries.screens.parameters import AgentName
from lemming.queries.screens.screen import Column, Note, Screen, ScreenResult


def list_memories(org: OrgPath, agent: AgentName) -> ScreenResult:
    """List an agent's memories."""
    require_agent_folder(org, agent)
    memories = load_memories(org, agent)
    rows = [{"agent": agent, "key": key, "value": value} for key, value in memories.values.items()]
    return ScreenResult(rows, [Note(f"ignored: {problem}", is_warning=True) for problem in memories.problems])


MEMORY = Screen(
    "memory",
    kind="memory",
    title="Memory",
    command="memory list",
    tool="memory",
    query=list_memories,
    empty="no memories",
    columns=(
        Column("agent", about="Name of the agent."),
        Column("key", "KEY", "Key of the memory, and name of its file."),
        Column("value", "VALUE", "Value of the memory.", Any, text=lambda row: to_text(row["value"])),
    ),
)
