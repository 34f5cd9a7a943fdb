"""`lemming waiting`: what waits for a person."""

from __future__ import annotations

from typing import Annotated

import typer

from lemming.capabilities.requests.waiting import WaitsForPerson
from lemming.capabilities.requests.waiting import waiting as what_waits
from lemming.commands.options import AsJson, option
from lemming.commands.org import find_org, require_folder
from lemming.commands.screen import show, show_json, tell
from lemming.commands.whole import show_folded
from lemming.org.organisation import OrgPath

ForPerson = Annotated[str | None, option("--as PERSON", "Only what waits for PERSON.", of_agents=True)]


def waiting(ctx: typer.Context, person: ForPerson = None, as_json: AsJson = False) -> None:
    """Show what waits for a person: what is needed, for whom, since when, and what happens at its deadline.

    The oldest comes first. Exit status 1 says that something waits.

    \b
    Examples:
      lemming waiting
      lemming waiting > /dev/null || notify-send "somebody waits for you"
      lemming waiting --json | jq -r .id
    """
    show_items(items_for(find_org(ctx), person), as_json=as_json)


def items_for(base: OrgPath, person: str | None) -> list[WaitsForPerson]:
    """Return what waits for one person, or for anybody."""
    if person is not None:
        require_folder(base, person)
    return [item for item in what_waits(base) if person in (None, item.person)]


def show_items(items: list[WaitsForPerson], *, as_json: bool) -> None:
    """Print what waits, and end with the exit status that says whether anything does."""
    if as_json:
        for item in items:
            show_json("waiting", item.as_json())
    elif items:
        for item in items:
            show_folded(item.id, item.line)
        tell(
            "`lemming approve ID` or `lemming deny ID` decides, `lemming answer ID TEXT` answers, "
            "`lemming approvals ID` shows one whole",
            style="dim",
        )
    else:
        show("nothing waits for a person")
    raise typer.Exit(1 if items else 0)
