"""`lemming memory`: show and change an agent's memory."""

from __future__ import annotations

import sys
from typing import Annotated

from lemming.commands.command_context import (
    AgentFallbackGroup,
    AgentName,
    CommandContext,
    argument,
    make_command_group,
    require_agent_folder,
)
from lemming.commands.terminal import print_json, print_notice, print_pretty_json, to_text
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.memory import list_memories, load_memory
from lemming.libraries.lenient_json import parse_or_default
from lemming.libraries.memory_files import delete_memory, save_memory
from lemming.queries.screens.entries_screen import MEMORY

Key = Annotated[str, argument("KEY", "Key of the memory.")]

app = make_command_group("Show and change an agent's memory.", cls=AgentFallbackGroup)


app.add_screen("list", MEMORY)


@app.subcommand("get")
def get_memory(context: CommandContext, agent: AgentName, key: Key) -> None:
    """Print one memory as JSON."""
    base = context.org
    require_agent_folder(base, agent)
    if key not in list_memories(base, agent):
        raise _no_such_memory(agent, key, list_memories(base, agent))
    value = load_memory(base, agent, key)
    print_json("memory", {"agent": agent, "key": key, "value": value})
    print_pretty_json(value)


@app.subcommand("set")
def set_memory(
    context: CommandContext,
    agent: AgentName,
    key: Key,
    value: Annotated[str, argument("VALUE", 'JSON or plain text; "-" reads standard input.')],
) -> None:
    """Set a memory.

    \b
    Examples:
      lemming memory set planner goal "Finish the report"
      lemming memory set planner limits '{"pages": 3}'
    """
    base = context.org
    require_agent_folder(base, agent)
    text = sys.stdin.read() if value == "-" else value
    parsed_value = parse_or_default(text, text.rstrip("\n"))
    save_memory(base, agent, key, parsed_value)
    print_json("memory", {"agent": agent, "key": key, "value": parsed_value})
    print_notice(f"{agent}: set {key} to {to_text(parsed_value)}")


@app.subcommand("rm")
def remove_memory(context: CommandContext, agent: AgentName, key: Key) -> None:
    """Remove a memory."""
    base = context.org
    require_agent_folder(base, agent)
    if not delete_memory(base, agent, key):
        raise _no_such_memory(agent, key, list_memories(base, agent))
    print_json("memory_removed", {"agent": agent, "key": key})
    print_notice(f"{agent}: removed {key}")


def _no_such_memory(agent: str, key: str, keys: list[str]) -> UsageError:
    hint = did_you_mean(key, keys) or f"keys there: {', '.join(keys) or 'none'}"
    return UsageError(f'{agent} has no memory "{key}"', hint=hint)
