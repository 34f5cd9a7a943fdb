"""`lemming workers`: running workers, and their end on request."""

from __future__ import annotations

from typing import Annotated

from lemming.capabilities.workers.running_workers import WORKERS, stop_worker
from lemming.commands.command_context import AsPerson, CommandContext, argument, make_command_group, make_screen_command
from lemming.commands.pause import get_user_name
from lemming.commands.terminal import print_json, print_notice

app = make_command_group("List running workers, and stop one.", default=make_screen_command(WORKERS))
app.add_screen("list", WORKERS)


@app.subcommand("stop")
def stop(
    context: CommandContext,
    agent: Annotated[str, argument("AGENT", "Agent whose worker is to end.")],
    person: AsPerson = None,
) -> None:
    """Stop the running worker of an agent.

    The harness ends within seconds. Its changes are discarded, its cost counts, and the request is answered as failed.

    \b
    Examples:
      lemming workers stop coder
    """
    stop_worker(context.org, agent, by=person or get_user_name())
    print_json("stop", {"agent": agent})
    print_notice(f"the worker of {agent} is told to end")
