"""`lemming memory`: look at and change what an agent remembers."""

from __future__ import annotations

import sys
from typing import Annotated, Any

from lemming.commands.options import (
    AgentName,
    Here,
    Limit,
    ListOfAnAgent,
    argument,
    noun,
    require_folder,
)
from lemming.commands.screen import as_text, show_pretty, tell
from lemming.kernel import memory as store
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import JsonProblem, nearest, parse

Key = Annotated[str, argument("KEY", "The memory's name.")]

app = noun("See and change what an agent remembers.", cls=ListOfAnAgent)


@app.verb("list")
def list_memories(here: Here, agent: AgentName, limit: Limit = None) -> None:
    """List what an agent remembers."""
    base = here.org
    require_folder(base, agent)
    memories = store.read_memories(base, agent)
    found = [{"agent": agent, "key": key, "value": value} for key, value in memories.values.items()]
    columns = {"KEY": "key", "VALUE": lambda it: as_text(it["value"])}
    here.lists("memory", found, columns, limit, nothing=f"{agent} remembers nothing")
    for problem in memories.problems:
        tell(f"ignored: {problem}", style="yellow")


@app.verb("get")
def get_memory(here: Here, agent: AgentName, key: Key) -> None:
    """Print one memory as JSON."""
    base = here.org
    require_folder(base, agent)
    if key not in store.list_memories(base, agent):
        raise _no_such_memory(agent, key, store.list_memories(base, agent))
    value = store.load_memory(base, agent, key)
    if not here.shows("memory", {"agent": agent, "key": key, "value": value}):
        show_pretty(value)


@app.verb("set")
def set_memory(
    here: Here,
    agent: AgentName,
    key: Key,
    value: Annotated[str, argument("VALUE", 'JSON, else taken as text; "-": standard input.')],
) -> None:
    """Make an agent remember something.

    \b
    Examples:
      lemming memory set planner goal "Finish the report"
      lemming memory set planner limits '{"pages": 3}'
    """
    base = here.org
    require_folder(base, agent)
    meant = _meant(sys.stdin.read() if value == "-" else value)
    store.save_memory(base, agent, key, meant)
    if not here.shows("memory", {"agent": agent, "key": key, "value": meant}):
        tell(f"{agent} remembers {key}: {as_text(meant)}")


@app.verb("rm")
def remove_memory(here: Here, agent: AgentName, key: Key) -> None:
    """Make an agent forget something."""
    base = here.org
    require_folder(base, agent)
    if not store.delete_memory(base, agent, key):
        raise _no_such_memory(agent, key, store.list_memories(base, agent))
    if not here.shows("memory_removed", {"agent": agent, "key": key}):
        tell(f"{agent} has forgotten {key}")


def _meant(text: str) -> Any:
    """Return the JSON value a text stands for, else the text itself."""
    try:
        return parse(text)
    except JsonProblem:
        return text.rstrip("\n")


def _no_such_memory(agent: str, key: str, known: list[str]) -> UsageError:
    hint = nearest(key, known) or f"keys there: {', '.join(known) or 'none'}"
    return UsageError(f'{agent} has no memory "{key}"', hint=hint)
