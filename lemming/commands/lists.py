"""`lemming inbox` and `lemming logs`: declared lists, and what a list alone does not do."""

from __future__ import annotations

import time
from typing import Annotated, Any

from lemming.commands.command_context import CommandContext, find_agent, option, with_parameters_of
from lemming.kernel.base.errors import UsageError
from lemming.kernel.org.config import load_config
from lemming.queries.screens.entries_screen import INBOX, list_inbox, record_read_mark
from lemming.queries.screens.logs_screen import LOGS, LogReader
from lemming.queries.screens.screen import ScreenResult

_POLL_INTERVAL_S = 0.5


@with_parameters_of(INBOX)
def inbox(
    context: CommandContext,
    peek: Annotated[bool, option("--peek", "For a person: keep the entries unread.")] = False,
    all_read: Annotated[bool, option("--mark-all-read", "For a person: mark all entries as read.")] = False,
    **values: Any,
) -> None:
    """Show the entries that an agent's next turn will see: new entries (*), then earlier entries.

    Oldest first.

    For a person: unread entries (*), then the newest read entries. Printed entries count as read, except with
    --json or --peek.
    """
    base, name = context.org, values["agent"]
    is_person = load_config(base).is_person(find_agent(base, name))
    if (peek or all_read) and not is_person:
        hint = "leave out --peek and --mark-all-read; the turns of an agent record its reads"
        raise UsageError(f"{name} is not a person", hint=hint)
    result = list_inbox(base, **values)
    context.print_screen(INBOX, result)
    if is_person and (all_read or not (peek or context.as_json)):
        record_read_mark(base, name, result.marks[all_read])


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
