"""`lemming inbox` and `lemming outbox`: entries that an agent will see, and entries written by the agent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

from lemming.commands.command_context import AgentName, CommandContext, find_agent, option, require_agent_folder
from lemming.commands.run_output import payload_to_text
from lemming.commands.terminal import format_count, one_line, print_data, print_json, print_notice, style_text
from lemming.commands.trust import load_settings
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.entry_kinds import MessageKind
from lemming.kernel.base.errors import UsageError
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.tick.firing_plan import is_person_agent
from lemming.queries.message_lists import MessageList, load_inbox, load_outbox, record_read_mark


def print_entries(entries: Sequence[OutboxEntry], *, unread: Iterable[str] = (), with_author: bool) -> None:
    """Print entries, one per line; unread entries are marked with a star. `unread` holds file names."""
    unread_files, current_time = set(unread), timestamp(SystemClock().now())
    tick_width = max((len(str(entry.tick)) for entry in entries), default=0)
    author_width = max((len(entry.agent) for entry in entries), default=0)
    for entry in entries:
        star = "* " if entry.file in unread_files else "  " if unread_files else ""
        author = f"{entry.agent.ljust(author_width)}  " if with_author else ""
        tags = style_text(f"  #{' #'.join(one_line(tag) for tag in entry.tags)}", "dim") if entry.tags else ""
        tags += style_text(f"  (not before {entry.not_before})", "dim") if entry.not_before > current_time else ""
        prefix = f"{star}{entry.tick:>{tick_width}}  {author}{entry.kind:<8}"
        print_data(f"{prefix}  {one_line(payload_to_text(entry.payload), 2000)}{tags}")


def print_entries_as_json(entries: Iterable[OutboxEntry], *, unread: Iterable[str] | None = None) -> None:
    """Print entries as objects with the keys of their files; with `unread`, add the key `is_unread`."""
    unread_files = None if unread is None else set(unread)
    for entry in entries:
        extra = {} if unread_files is None else {"is_unread": entry.file in unread_files}
        print_json("entry", {**entry.as_json(), **extra})


def inbox(
    context: CommandContext,
    name: AgentName,
    number: Annotated[int, option("-n --limit N", "Show at most N entries.", min=1)] = 50,
    peek: Annotated[bool, option("--peek", "For a person: keep the entries unread.")] = False,
    all_read: Annotated[bool, option("--mark-all-read", "For a person: mark all entries as read.")] = False,
) -> None:
    """Show the entries that an agent's next turn will see: new entries (*), then earlier entries.

    Oldest first.

    For a person: unread entries (*), then the newest read entries. Printed entries count as read, except with
    --json or --peek.
    """
    base = context.org
    agent, config = find_agent(base, name), load_settings(base)
    is_person, messages = is_person_agent(agent, config), load_inbox(base, agent, config, number)
    if context.as_json:
        print_entries_as_json(messages.entries, unread=messages.unread)
    elif messages.entries:
        print_entries(messages.entries, unread=messages.unread, with_author=True)
    else:
        print_notice("no entries")
    if not context.as_json:
        _print_omitted_entries(messages, is_person=is_person)
    if not is_person:
        if peek or all_read:
            raise UsageError(
                f"{name} is not a person",
                hint="leave out --peek and --mark-all-read; the turns of an agent record its reads",
            )
    elif all_read or not (peek or context.as_json):
        record_read_mark(base, name, messages.mark_of_all if all_read else messages.mark)


def _print_omitted_entries(messages: MessageList, *, is_person: bool) -> None:
    """Print the numbers of omitted entries, and problems of ignored files."""
    if messages.omitted:
        print_notice(f"{messages.omitted} more; raise -n to see them", style="dim")
    if messages.waiting:
        explanation = "are unread: run the command again" if is_person else "do not fit and wait for the next turn"
        print_notice(f"{messages.waiting} more new entries {explanation}", style="dim")
    for problem in messages.problems:
        print_notice(f"ignored: {problem}", style="yellow")


def outbox(
    context: CommandContext,
    name: AgentName,
    number: Annotated[int, option("-n --limit N", "Show at most N entries.", min=1)] = 20,
    kind: Annotated[MessageKind | None, option("--kind KIND", "Show entries of this kind only.")] = None,
) -> None:
    """Show the newest entries of an agent's outbox, oldest first.

    \b
    Examples:
      lemming outbox editor -n 5
      lemming outbox editor --json | jq -r .payload.text
    """
    base = context.org
    require_agent_folder(base, name)
    messages = load_outbox(base, name, number, kind, with_problems=not context.as_json)
    if context.as_json:
        print_entries_as_json(messages.entries)
        return
    if messages.entries:
        print_entries(messages.entries, with_author=False)
    else:
        print_notice("no entries yet")
    if count := len(messages.problems):
        print_notice(f"{format_count(count, 'file')} ignored; `lemming validate {name}` says why", style="yellow")
