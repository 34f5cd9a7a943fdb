"""`lemming approvals`: all that waits for a person, and the exact calls that wait for approval."""

from __future__ import annotations

import contextlib
from typing import Annotated, Any

import typer

from lemming.base.errors import ConfigError
from lemming.base.jsontext import pretty
from lemming.capabilities.approvals.deciding import find_waiting
from lemming.capabilities.approvals.screens import call_of
from lemming.capabilities.approvals.waiting import SHOW
from lemming.commands.options import AsJson, argument
from lemming.commands.org import find_org
from lemming.commands.waiting import ForPerson, items_for, show_items
from lemming.commands.whole import show_call
from lemming.messages import names_of, read_entry
from lemming.org.organisation import OrgPath


def approvals(
    ctx: typer.Context,
    reference: Annotated[
        str | None, argument("ID", "One of them whole: a request's id, or that of its call.")
    ] = None,
    person: ForPerson = None,
    as_json: AsJson = False,
) -> None:
    """Show what waits for a person: calls that need approval, questions, plans to approve.

    With an ID: the whole call, why it asks, the files it is bound to, what of it may yet change, and what it
    would write. Nothing of it is cut: longer lines go on behind "»", signs that are not seen stand as their
    numbers. Exit status 1 says that something waits.

    \b
    Examples:
      lemming approvals
      lemming approvals 3fa9c1
      lemming approvals --json | jq -r 'select(.call) | .call.id'
    """
    base = find_org(ctx)
    items = items_for(base, person)
    if reference is not None:
        _, request, call = find_waiting(base, reference)
        items = [item for item in items if item.identity == request.identity]
        if call and not as_json:
            shown = call_of(request, {request.identity: call}) or call
            if entry := _entry_of(base, call):
                shown = {**shown, "diff": entry}
            show_call(shown, [(item.person, item.at_deadline) for item in items])
            raise typer.Exit(1)
    show_items(items, as_json=as_json)


def _entry_of(base: OrgPath, call: dict[str, Any]) -> str:
    """Return the entry that somebody is to be shown; empty where the call is about none, or it is gone."""
    with contextlib.suppress(ConfigError, FileNotFoundError, StopIteration):
        if call["tool"] == SHOW:
            entry = read_entry(base, next(iter(names_of([call["args"]["entry"]]))))
            return pretty(entry.as_json()).decode()
    return ""
