"""`lemming diff`: how the files differ between two ticks."""

from __future__ import annotations

from typing import Annotated

import typer

from lemming.commands.changes import OneAgent, OnlyStat, show_changes
from lemming.commands.options import AsJson, argument
from lemming.commands.org import find_org, require_folder
from lemming.commands.screen import show_json, tell
from lemming.timeline.unkept import past_states

_PLACE = "A tick, a commit of `lemming history`, or `now`."


def diff(
    ctx: typer.Context,
    old: Annotated[str, argument("A", _PLACE)],
    new: Annotated[str, argument("B", _PLACE)],
    agent: OneAgent = None,
    only_stat: OnlyStat = False,
    as_json: AsJson = False,
) -> None:
    """Show how the files after tick B differ from those after tick A. `now` is what is on disk.

    \b
    Examples:
      lemming diff 40 now --stat
      lemming diff 40 42 editor
    """
    base = find_org(ctx)
    if agent is not None:
        require_folder(base, agent)
    past = past_states(base)
    changes = past.changes_between(old, new, agent=agent or "")
    if not as_json:
        if past.remark:
            tell(past.remark)
        show_changes(changes, only_stat=only_stat)
        return
    facts = changes.as_json()
    if only_stat:
        del facts["diff"]
    show_json("changes", {"from": old, "to": new, **facts})
