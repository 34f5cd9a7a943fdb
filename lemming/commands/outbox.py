"""`lemming outbox`: what an agent has written."""

from __future__ import annotations

from typing import Annotated

import typer

from lemming.base.kinds import MessageKind
from lemming.commands.entries import show_entries, show_entries_as_json
from lemming.commands.options import AgentName, AsJson, option
from lemming.commands.org import find_org, require_folder
from lemming.commands.screen import counted, tell
from lemming.facts.messages import outbox_of


def outbox(
    ctx: typer.Context,
    name: AgentName,
    number: Annotated[int, option("-n N", "How many entries at most.", min=1)] = 20,
    kind: Annotated[MessageKind | None, option("--kind KIND", "Only entries of this kind.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the newest entries an agent has written, oldest first.

    \b
    Examples:
      lemming outbox editor -n 5
      lemming outbox editor --json | jq -r .payload.text
    """
    base = find_org(ctx)
    require_folder(base, name)
    found = outbox_of(base, name, number, kind, with_problems=not as_json)
    if as_json:
        show_entries_as_json(found.entries)
        return
    if found.entries:
        show_entries(found.entries, with_author=False)
    else:
        tell("nothing written yet")
    if count := len(found.problems):
        tell(f"{counted(count, 'file')} ignored; `lemming validate {name}` says why", style="yellow")
