"""`lemming inbox` and `lemming outbox`: what an agent's next turn would see, and what it has written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

from lemming.commands.narration import text_of
from lemming.commands.options import AgentName, Here, find_agent, option, require_folder
from lemming.commands.screen import counted, one_line, painted, show, show_json, tell
from lemming.commands.trust import load_settings
from lemming.facts.messages import Messages, inbox_of, note_read, outbox_of
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.kinds import MessageKind
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.tick.firing_plan import is_for_a_person


def show_entries(entries: Sequence[OutboxEntry], *, unread: Iterable[str] = (), with_author: bool) -> None:
    """Print entries one a line; those whose file is in `unread` are marked with a star."""
    fresh, now = set(unread), timestamp(SystemClock().now())
    tick_width = max((len(str(entry.tick)) for entry in entries), default=0)
    author_width = max((len(entry.agent) for entry in entries), default=0)
    for entry in entries:
        mark = "* " if entry.file in fresh else "  " if fresh else ""
        author = f"{entry.agent.ljust(author_width)}  " if with_author else ""
        tags = painted(f"  #{' #'.join(one_line(tag) for tag in entry.tags)}", "dim") if entry.tags else ""
        tags += painted(f"  (waits until {entry.not_before})", "dim") if entry.not_before > now else ""
        place = f"{mark}{entry.tick:>{tick_width}}  {author}{entry.kind:<8}"
        show(f"{place}  {one_line(text_of(entry.payload), 2000)}{tags}")


def show_entries_as_json(entries: Iterable[OutboxEntry], *, unread: Iterable[str] | None = None) -> None:
    """Print entries as objects with the keys of their files; with `unread` also whether each is."""
    fresh = None if unread is None else set(unread)
    for entry in entries:
        extra = {} if fresh is None else {"is_unread": entry.file in fresh}
        show_json("entry", {**entry.as_json(), **extra})


def inbox(
    here: Here,
    name: AgentName,
    number: Annotated[int, option("-n --limit N", "How many entries at most.", min=1)] = 50,
    peek: Annotated[bool, option("--peek", "For a person: what is shown stays unread.")] = False,
    all_read: Annotated[
        bool, option("--all-read", "For a person: all there is counts as read, shown or not.")
    ] = False,
) -> None:
    """Show what an agent's next turn would see: what is new to it (*), then what it knows. Oldest first.

    For a person: what they have not read (*), then the newest they have. What is shown counts as read, but
    not with --json or --peek.
    """
    base = here.org
    agent, config = find_agent(base, name), load_settings(base)
    is_person, found = is_for_a_person(agent, config), inbox_of(base, agent, config, number)
    if here.as_json:
        show_entries_as_json(found.entries, unread=found.unread)
    elif found.entries:
        show_entries(found.entries, unread=found.unread, with_author=True)
    else:
        tell("nothing to read")
    if not here.as_json:
        _tell_unshown(found, is_person=is_person)
    if not is_person:
        if peek or all_read:
            raise UsageError(f"{name} is no person", hint="its own turns tell what it has read")
    elif all_read or not (peek or here.as_json):
        note_read(base, name, found.mark_of_all if all_read else found.mark)


def _tell_unshown(found: Messages, *, is_person: bool) -> None:
    if found.more:
        tell(f"{found.more} more with a larger -n", style="dim")
    if found.waiting:
        rest = "are unread: look again" if is_person else "do not fit and wait for the turn after"
        tell(f"{found.waiting} more new entries {rest}", style="dim")
    for problem in found.problems:
        tell(f"ignored: {problem}", style="yellow")


def outbox(
    here: Here,
    name: AgentName,
    number: Annotated[int, option("-n --limit N", "How many entries at most.", min=1)] = 20,
    kind: Annotated[MessageKind | None, option("--kind KIND", "Only entries of this kind.")] = None,
) -> None:
    """Show the newest entries an agent has written, oldest first.

    \b
    Examples:
      lemming outbox editor -n 5
      lemming outbox editor --json | jq -r .payload.text
    """
    base = here.org
    require_folder(base, name)
    found = outbox_of(base, name, number, kind, with_problems=not here.as_json)
    if here.as_json:
        show_entries_as_json(found.entries)
        return
    if found.entries:
        show_entries(found.entries, with_author=False)
    else:
        tell("nothing written yet")
    if count := len(found.problems):
        tell(f"{counted(count, 'file')} ignored; `lemming validate {name}` says why", style="yellow")
