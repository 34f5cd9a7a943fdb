"""`lemming inbox`: what an agent's next turn would see."""

from __future__ import annotations

from typing import Annotated

import typer

from lemming.base.errors import UsageError
from lemming.commands.entries import show_entries, show_entries_as_json
from lemming.commands.options import AgentName, AsJson, option
from lemming.commands.org import find_agent, find_org
from lemming.commands.screen import tell
from lemming.commands.trust import load_settings
from lemming.facts.messages import Messages, inbox_of, note_read
from lemming.tick.plan import is_for_a_person


def inbox(
    ctx: typer.Context,
    name: AgentName,
    number: Annotated[int, option("-n N", "How many entries at most.", min=1)] = 50,
    peek: Annotated[bool, option("--peek", "For a person: what is shown stays unread.")] = False,
    all_read: Annotated[
        bool, option("--all-read", "For a person: all there is counts as read, shown or not.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what an agent's next turn would see: what is new to it (*), then what it knows. Oldest first.

    For a person: what they have not read (*), then the newest they have. What is shown counts as read, but
    not with --json or --peek.
    """
    base = find_org(ctx)
    agent, config = find_agent(base, name), load_settings(base)
    is_person, found = is_for_a_person(agent, config), inbox_of(base, agent, config, number)
    if as_json:
        show_entries_as_json(found.entries, unread=found.unread)
    elif found.entries:
        show_entries(found.entries, unread=found.unread, with_author=True)
    else:
        tell("nothing to read")
    if not as_json:
        _tell_rest(found, is_person=is_person)
    if not is_person:
        if peek or all_read:
            raise UsageError(f"{name} is no person", hint="its own turns tell what it has read")
    elif all_read or not (peek or as_json):
        note_read(base, name, found.mark_of_all if all_read else found.mark)


def _tell_rest(found: Messages, *, is_person: bool) -> None:
    if found.more:
        tell(f"{found.more} more with a larger -n", style="dim")
    if found.waiting:
        rest = "are unread: look again" if is_person else "do not fit and wait for the turn after"
        tell(f"{found.waiting} more new entries {rest}", style="dim")
    for problem in found.problems:
        tell(f"ignored: {problem}", style="yellow")
