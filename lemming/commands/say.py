"""`lemming say`: an urgent message of a person to one agent, which reaches a running turn at its next step."""

from __future__ import annotations

from typing import Annotated

from lemming.commands.command_context import (
    AgentName,
    AsPerson,
    CommandContext,
    argument,
    find_running_engine,
    join_text_argument,
)
from lemming.commands.terminal import print_notice
from lemming.kernel.base.errors import UsageError
from lemming.kernel.tick.tick_counter import load_tick
from lemming.obligations.current_requests import load_requests
from lemming.obligations.request_entries import choose_person, write_urgent_message
from lemming.queries.views.tick_summaries import find_working_turns


def say(
    context: CommandContext,
    agent: AgentName,
    text: Annotated[list[str] | None, argument("TEXT", 'The message; "-" reads standard input.')] = None,
    person: AsPerson = None,
) -> None:
    """Tell an agent something at once, even while it works.

    A running turn shows the message to the model with its next question. If no further question follows, or
    no turn is running, the agent's next turn shows it. It is an ordinary message with `"urgent": true`.

    \b
    Examples:
      lemming say editor "Stop after the first page, please."
      git diff | lemming say coder -
    """
    base = context.org
    message = join_text_argument(text)  # may wait for standard input, while ticks go by
    if not message:
        raise UsageError("the message is empty", hint=f'write lemming say {agent} "some text"')
    snapshot = load_requests(base)
    entry = write_urgent_message(base, snapshot, agent, message, person=choose_person(snapshot, person))
    context.print_entry(entry)
    if find_running_engine(base) and agent in find_working_turns(base, load_tick(base)):
        print_notice(f"{agent} is working: its next step shows it, or else its next turn")
    else:
        print_notice(f"the next turn of {agent} shows it")
