"""`lemming logs`: the log of the engine or of an agent, for people."""

from __future__ import annotations

import time
from typing import Annotated, Any

from lemming.commands.command_context import CommandContext, option, with_parameters_of
from lemming.queries.screens.logs_screen import LOGS, LogReader
from lemming.queries.screens.screen import ScreenResult

_POLL_INTERVAL_S = 0.5


@with_parameters_of(LOGS)
def logs(
    context: CommandContext,
    follow: Annotated[bool, option("-f --follow", "Follow the log until Ctrl-C.")] = False,
    **values: Any,
) -> None:
    """Show the log of the engine or of an agent.

    Prints the newest lines; with --since, --level or --grep, only matching lines.

    \b
    Examples:
      lemming logs -f
      lemming logs editor -n 3
      lemming logs --since 2h --level warning
      lemming logs --grep circuit --json | jq .event
    """
    number = values.pop("number")
    log = LogReader(context.org, **values)
    lines = log.read_newest(number)
    if lines or not follow:
        context.print_screen(LOGS, ScreenResult(lines))
    while follow:
        time.sleep(_POLL_INTERVAL_S)
        context.print_lines(LOGS, log.read_appended())
