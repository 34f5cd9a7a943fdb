"""`lemming prune`: take away what is kept beyond the settings."""

from __future__ import annotations

from typing import Annotated

import typer

from lemming.base.clock import SystemClock
from lemming.base.errors import OrgBusy
from lemming.commands.backup import size_in_words
from lemming.commands.options import AsJson, duration, option
from lemming.commands.org import find_org
from lemming.commands.screen import counted, show_columns, show_json, tell
from lemming.org.config import load_config
from lemming.org.organisation import Organisation
from lemming.service.prune import Surplus, find_surplus, remove
from lemming.tick.runtime import open_org

DAYS_30 = 30 * 86_400.0


def prune(
    ctx: typer.Context,
    yes: Annotated[bool, option("--yes -y", "Do it; without this, only show it.")] = False,
    older_than: Annotated[
        float | None,
        option(
            "--older-than DURATION",
            "Full logs and what was set aside: only what is older than this. Default: 30d.",
            parser=duration,
        ),
    ] = None,
    journals: Annotated[
        int | None,
        option(
            "--journals TICKS",
            "Keep packed journals of so many ticks. Default: kept_journals in config/org.json.",
            min=0,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what an organisation keeps beyond its settings, and how large it is; with --yes, take it away.

    Packed journals older than kept_journals (which is null by default: all are kept), logs that were full,
    and what repairs, rewinds and removed agents left in aside/. Entries go by retention_ticks, at the end of
    each tick. Nothing that a turn, a ledger or a tick under way needs is touched. What journals told is gone
    with them: `why`, `tick` and `replay` know nothing of those ticks any more.

    \b
    Examples:
      lemming prune
      lemming prune --older-than 7d --yes
      lemming prune --journals 1000 --yes
    """
    base = find_org(ctx)
    found = find_surplus(
        base,
        load_config(base),
        older_than_s=DAYS_30 if older_than is None else older_than,
        keep_journals=journals,
        now=SystemClock().now(),
    )
    left = _take_away(base, found) if yes else []
    _show(found, left, is_done=yes, as_json=as_json)


def _take_away(base: Organisation, found: list[Surplus]) -> list[Surplus]:
    """Remove all of it; return the journals that are left to an engine under way."""
    beside = [surplus for surplus in found if surplus.kind != "journals"]
    try:
        with open_org(base, command="prune"):
            for surplus in found:
                remove(base, surplus)
        return []
    except OrgBusy:
        for surplus in beside:
            remove(base, surplus)
        return [surplus for surplus in found if surplus.kind == "journals"]


def _show(found: list[Surplus], left: list[Surplus], *, is_done: bool, as_json: bool) -> None:
    if as_json:
        for surplus in found:
            show_json("surplus", {**surplus.as_json(), "is_removed": is_done and surplus not in left})
        return
    if not found:
        tell("nothing is kept beyond the settings")
        return
    show_columns([[size_in_words(surplus.bytes), surplus.path, surplus.why] for surplus in found])
    gone = [surplus for surplus in found if surplus not in left]
    size = size_in_words(sum(surplus.bytes for surplus in (gone if is_done else found)))
    if not is_done:
        tell(
            f"{counted(len(found), 'thing')}, {size}: nothing has been removed; `lemming prune --yes` does it"
        )
        return
    tell(f"{counted(len(gone), 'thing')} removed, {size}")
    if left:
        tell("an engine is running: journals are left to it, or end it first", style="yellow")
