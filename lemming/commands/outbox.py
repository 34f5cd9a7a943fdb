"""`lemming outbox`: what an agent has written."""

from __future__ import annotations

from typing import Annotated

import typer

from lemming.base.kinds import MessageKind
from lemming.commands.entries import show_entries, show_entries_as_json
from lemming.commands.options import AgentName, AsJson, option
from lemming.commands.org import find_org, require_folder
from lemming.commands.screen import counted, tell
from lemming.messages import read_outbox_entries
from lemming.timeline.outbox_problems import outbox_problems


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
    entries = read_outbox_entries(base, name, None if kind else number)
    entries = [entry for entry in entries if kind in (None, entry.kind)][-number:]
    if as_json:
        show_entries_as_json(entries)
        return
    if entries:
        show_entries(entries, with_author=False)
    else:
        tell("nothing written yet")
    if problems := outbox_problems(base, name):
        tell(f"{counted(len(problems), 'file')} ignored; `lemming validate {name}` says why", style="yellow")
