"""`lemming inbox` and `lemming outbox`: entries that an agent will see, and entries written by the agent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

from lemming.commands.command_context import AgentName, CommandContext, find_agent, option
from lemming.commands.terminal import (
    format_count,
    one_line,
    print_data,
    print_json,
    print_notice,
    print_warning,
    style_text,
)
from lemming.commands.trust import load_settings
from lemming.journal_tools.outbox_validation import validate_outbox
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.entry_kinds import MessageKind
from lemming.kernel.base.errors import UsageError
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.tick.firing_plan import is_person_agent
from lemming.queries.message_lists import MessageList, load_inbox, record_read_mark
from lemming.queries.screens.entries_screen import DEFAULT_ENTRIES, OUTBOX
from lemming.queries.sentences import describe_entry


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
        print_data(f"{prefix}  {one_line(describe_entry(entry.payload), 2000)}{tags}")


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
        for entry in messages.entries:
            print_json("entry", {**OUTBOX.to_json(entry), "is_unread": entry.file in messages.unread})
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
        print_warning(f"ignored: {problem}")


def outbox(
    context: CommandContext,
    name: AgentName,
    number: Annotated[int, option("-n --limit N", "Show at most N entries.", min=1)] = DEFAULT_ENTRIES,
    kind: Annotated[MessageKind | None, option("--kind KIND", "Show entries of this kind only.")] = None,
) -> None:
    """Show the newest entries of an agent's outbox, oldest first.

    \b
    Examples:
      lemming outbox editor -n 5
      lemming outbox editor --json | jq -r .payload.text
    """
    base = context.org
    result = OUTBOX.load(base, {"agent": name, "number": number, "kind": kind})
    if not context.as_json:
        print_entries(result.rows, with_author=False)
    context.print_screen(OUTBOX, result)
    if not context.as_json and (count := len(validate_outbox(base, name))):
        print_warning(f"{format_count(count, 'file')} ignored; `lemming validate {name}` says why")
