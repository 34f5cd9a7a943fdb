"""What `approve` and `deny` have in common: all that wait of a kind, and what is said once one is decided."""

from __future__ import annotations

import typer

from lemming.base.errors import UsageError
from lemming.capabilities.approvals.deciding import decide
from lemming.capabilities.approvals.screens import waits_beside
from lemming.capabilities.approvals.waiting import Word
from lemming.capabilities.requests.now import requests_now
from lemming.capabilities.requests.waiting import WaitsForPerson
from lemming.capabilities.requests.waiting import waiting as what_waits
from lemming.commands.screen import show, show_json, tell
from lemming.messages import OutboxEntry
from lemming.org.organisation import Organisation, OrgPath


def that_wait(
    base: OrgPath, *, tool: str | None, agent: str | None, person: str | None
) -> list[WaitsForPerson]:
    """Return the calls that wait, each once though several may be asked; raise `UsageError` for none."""
    waiting = [it for it in what_waits(base) if it.call and tool in (None, it.call["tool"])]
    waiting = [it for it in waiting if person in (None, it.person) and agent in (None, it.asker)]
    found = {it.identity: it for it in reversed(waiting)}
    if not found:
        which = f"no call{f' of {tool}' if tool else ''}{f' by {agent}' if agent else ''}"
        raise UsageError(f"{which} waits for approval", hint="`lemming approvals` lists all that wait")
    return [*reversed(found.values())]


def decide_all(
    base: OrgPath, items: list[WaitsForPerson], word: Word, person: str | None, *, text: str = "", yes: bool
) -> list[OutboxEntry]:
    """Decide about all of these, once the person at the keyboard has said so."""
    if not yes and not typer.confirm(f"{word.capitalize()} these {len(items)}?", err=True):
        raise typer.Exit(1)
    return [decide(base, item.identity, word, person=person or item.person, text=text) for item in items]


def tell_decided(entry: OutboxEntry, *, as_json: bool) -> None:
    """Print the entry that says what was decided, or where it is."""
    show_json("entry", entry.as_json()) if as_json else show(entry.file)


def tell_what_else(base: OrgPath, identity: str) -> None:
    """Say what has to be decided or answered too before a call that was approved is made."""
    org = Organisation.at(base)
    others = waits_beside(org, requests_now(org), identity)
    if others:
        named = ", ".join(f"{it.id} ({' or '.join(it.holders) or 'nobody'})" for it in others)
        tell(f"it is made once these are decided or answered too, as one turn asked for all of them: {named}")
