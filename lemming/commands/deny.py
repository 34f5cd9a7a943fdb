"""`lemming deny`: a person says no to a call that waits for leave."""

from __future__ import annotations

from typing import Annotated

import typer

from lemming.asking.decide import decide
from lemming.commands.options import AsJson, AsPerson
from lemming.commands.org import find_org
from lemming.commands.screen import show, show_json


def deny(
    ctx: typer.Context,
    reference: Annotated[
        str, typer.Argument(metavar="ID", help="A request's id, the beginning of it, or its call's.")
    ],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why not; the agent is told.")] = "",
    person: AsPerson = None,
    as_json: AsJson = False,
) -> None:
    """Say no to a call that waits for leave, or to a plan. Prints the path of the entry that says so.

    \b
    Example:
      lemming deny 3fa9c1 --reason "not on a Friday"
    """
    entry = decide(find_org(ctx), reference, "deny", person=person, text=reason)
    show_json("entry", entry.as_json()) if as_json else show(entry.file)
