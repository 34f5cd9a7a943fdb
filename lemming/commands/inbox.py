"""`lemming inbox`: what an agent's next turn would see."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from lemming.base.errors import UsageError
from lemming.commands.entries import show_entries, show_entries_as_json
from lemming.commands.options import AgentName, AsJson, option
from lemming.commands.org import find_agent, find_org
from lemming.commands.screen import tell
from lemming.commands.trust import load_settings
from lemming.facts.preview import preview_tick
from lemming.journal.ledger import AgentState, amend_state, read_state
from lemming.journal.read_mark import ReadMark
from lemming.mail.inbox import Inbox, assemble
from lemming.messages import OutboxEntry
from lemming.org.organisation import OrgPath
from lemming.tick.plan import is_for_a_person

A_PERSONS_CHARS = 1 << 30  # a screen has room


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
    agent = find_agent(base, name)
    preview = preview_tick(base, load_settings(base))
    org, state = preview.snapshot.config.org, read_state(base, name)
    view = preview.snapshot.mail.view(agent, state.read)
    is_person = is_for_a_person(agent, preview.snapshot.config)
    limit = number if is_person else org.inbox_limit
    box = assemble(view, limit=limit, chars=A_PERSONS_CHARS if is_person else org.inbox_chars)
    entries = [*box.unread, *box.known][:number]
    _show(entries, {entry.file for entry in box.unread}, as_json=as_json)
    if not as_json:
        _tell_rest(base, box, shown=len(entries), is_person=is_person)
    if not is_person:
        if peek or all_read:
            raise UsageError(f"{name} is no person", hint="its own turns tell what it has read")
    elif all_read or not (peek or as_json):
        _mark_read(base, name, state, view.mark_after((), (), is_all=True) if all_read else box.mark)


def _mark_read(base: OrgPath, name: str, state: AgentState, mark: ReadMark) -> None:
    """Note in a person's ledger what they have read; no turn of theirs ever will."""
    if mark != state.read:
        amend_state(base, name, replace(state, read=mark), sync=False)


def _show(entries: list[OutboxEntry], unread: set[str] | None, *, as_json: bool) -> None:
    if as_json:
        show_entries_as_json(entries, unread=unread)
    elif entries:
        show_entries(entries, unread=unread or (), with_author=True)
    else:
        tell("nothing to read")


def _tell_rest(base: OrgPath, box: Inbox, *, shown: int, is_person: bool) -> None:
    more = len(box.unread) + len(box.known) - shown
    if more > 0:
        tell(f"{more} more with a larger -n", style="dim")
    if box.waiting:
        rest = "are unread: look again" if is_person else "do not fit and wait for the turn after"
        tell(f"{box.waiting} more new entries {rest}", style="dim")
    for problem in box.problems:
        tell(f"ignored: {problem}", style="yellow")
