"""`lemming upgrade`: an organisation's files as this version writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lemming.commands.options import AsJson, option
from lemming.commands.org import find_org
from lemming.commands.screen import counted, show, show_json, tell
from lemming.org.config import load_config
from lemming.org.format import NEWEST_FORMAT
from lemming.service.upgrade import steps_of
from lemming.service.upgrade import upgrade as do_upgrade
from lemming.tick.runtime import open_org


def upgrade(
    ctx: typer.Context,
    yes: Annotated[bool, option("--yes -y", "Do it; without this, only show it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what earlier versions wrote otherwise, and with --yes write it as this one does.

    It need not be done: organisations of every earlier version are run as they are. Afterwards
    config/org.json says "format", by which a version that is too old for it can tell: it refuses before it
    writes anything. `lemming backup` first is a good habit.

    \b
    Example:
      lemming upgrade --yes
    """
    base = find_org(ctx)
    before, steps = load_config(base).org.format, steps_of(base)
    if yes and steps:
        with open_org(base, command="upgrade"):
            do_upgrade(base, steps)
    is_done = yes or not steps
    if as_json:
        facts = {"from": before, "to": NEWEST_FORMAT, "is_done": is_done}
        show_json("upgrade", {**facts, "files": [step.file for step in steps]})
        return
    for step in steps:
        show(f"{step.file}: {step.text}")
    if not steps:
        tell(f"{Path(base)} has format {NEWEST_FORMAT}, the newest: nothing to upgrade")
    elif yes:
        tell(f"{counted(len(steps), 'file')} written: format {NEWEST_FORMAT} (before: {before})")
    else:
        tell(f"from format {before} to {NEWEST_FORMAT}; `lemming upgrade --yes` does it")
