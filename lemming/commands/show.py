"""`lemming show`: what a tick changed."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lemming.commands.changes import OneAgent, OnlyStat, show_changes
from lemming.commands.options import AsJson, argument
from lemming.commands.org import find_org, require_folder
from lemming.commands.screen import show_cut, show_json, tell
from lemming.history.read import Changes, Commit
from lemming.timeline.unkept import past_states


def show(
    ctx: typer.Context,
    tick: Annotated[str, argument("TICK", "A tick, or a commit as `lemming history` shows it.")],
    agent: OneAgent = None,
    only_stat: OnlyStat = False,
    as_json: AsJson = False,
) -> None:
    """Show which files a tick changed, and how. A terminal gets lines of its width; `| less` all of them.

    \b
    Examples:
      lemming show 42 --stat
      lemming show 42 editor
      lemming show @3fa9c1d2e0
    """
    base = find_org(ctx)
    if agent is not None:
        require_folder(base, agent)
    past = past_states(base)
    commit = past.commit_of(int(tick)) if tick.isdecimal() else past.state(tick).commit
    changes = past.changes_of(commit, agent=agent or "") if commit else Changes([], "")
    if as_json:
        show_json("changes", _as_json(tick, commit, changes, only_stat=only_stat))
        return
    if commit is None:
        tell(f"tick {tick} changed nothing")
        return
    named = commit.short if commit.id else ""
    show_cut(f"{commit.subject}  {commit.at}  {named}".rstrip(), "bold")
    if past.remark:
        tell(past.remark)
    show_changes(changes, only_stat=only_stat)


def _as_json(tick: str, commit: Commit | None, changes: Changes, *, only_stat: bool) -> dict[str, Any]:
    facts = changes.as_json()
    if only_stat:
        del facts["diff"]
    return {"of": tick, "commit": commit.as_json() if commit else None, **facts}
