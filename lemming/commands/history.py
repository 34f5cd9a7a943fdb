"""`lemming history`: what has been kept, tick by tick; turns the keeping on and off."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lemming.base.errors import OrgBusy
from lemming.base.jsontext import parse, pretty
from lemming.commands.options import AsJson, argument, option
from lemming.commands.org import find_org, require_folder
from lemming.commands.screen import counted, in_dollars, show_json, show_list, tell
from lemming.files import fs
from lemming.files.lock import changing, read_to_change
from lemming.org.config import ORG_FILE, load_config
from lemming.org.organisation import OrgPath
from lemming.tick.counter import load_tick

COLUMNS = {
    "COMMIT": "short",
    "WHEN (UTC)": lambda it: it["at"][:16].replace("T", " "),
    "WHAT": "subject",
    "AGENTS": lambda it: ", ".join(it["agents"]),
    "SPENT": lambda it: (
        f"{counted(it['credits'], 'credit')}, {in_dollars(it['cost_usd'])}" if it["calls"] else ""
    ),
}


def history(
    ctx: typer.Context,
    what: Annotated[
        str | None,
        argument(
            "[AGENT|on|off]",
            "Only commits that changed this agent's files; or turn the history on or off.",
            of_agents=True,
        ),
    ] = None,
    number: Annotated[int, option("-n N", "How many of the newest; 0 shows all.", min=0)] = 20,
    as_json: AsJson = False,
) -> None:
    """Show what has been kept: a line for each tick that changed something, and for edits by hand.

    With `on`, every tick is a commit in .lemming/history.git: those to come, and those that the journals
    tell of already (not while an engine runs). With `off` no more are added; what is there can still be read.
    Both change one value in config/org.json.

    \b
    Examples:
      lemming history on
      lemming history editor -n 5
      lemming history --json | jq -s 'map(.credits) | add'
    """
    base = find_org(ctx)
    if what in ("on", "off"):
        _switch(base, is_on=what == "on", as_json=as_json)
        return
    if what is not None:
        require_folder(base, what, words=("on", "off"))
    from lemming.history.read import History

    commits = History(Path(base)).commits(agent=what or "", limit=number or None)[::-1]
    facts = [commit if as_json else {**commit.as_json(), "short": commit.short} for commit in commits]
    show_list("commit", facts, COLUMNS, as_json=as_json, nothing="nothing kept yet")


def _switch(base: OrgPath, *, is_on: bool, as_json: bool) -> None:
    """Write one value into config/org.json, and leave the rest of it."""
    from lemming.history.git import FOLDER, require_git

    if is_on:
        require_git()
    value, before = "git" if is_on else "off", load_config(base).org.history
    if value != before:
        with changing(Path(base), "config"):
            plain = parse(read_to_change(base, ORG_FILE), allow_bom=True)
            fs.publish(Path(base), ORG_FILE, pretty({**plain, "history": value}))
    rebuilt = _rebuild(base) if is_on else 0
    if as_json:
        show_json("history", {"history": value, "before": before, "rebuilt": rebuilt})
    elif is_on:
        tell(f"the history is on: every tick that changes something is kept in {FOLDER}")
        if rebuilt:
            tell(
                f"{counted(rebuilt, 'tick')} of the past made from the journals; `lemming history` shows them"
            )
        else:
            tell("`lemming history` lists them, `lemming show TICK` shows what one changed")
    else:
        tell("the history is off; what has been kept can still be read")


def _rebuild(base: OrgPath) -> int:
    """Make the history of the ticks so far where there is none; return how many. Not beside an engine."""
    from lemming.history.recorder import Recorder
    from lemming.tick.runtime import open_org
    from lemming.timeline import journals_of
    from lemming.timeline.rebuild import rebuild

    try:
        with open_org(base, command="history") as runtime:
            if not journals_of(base, None):
                return 0
            recorder = Recorder(runtime)
            repository = recorder.open()
            if not repository.head() and (rebuilt := rebuild(base, repository)):
                recorder.keep_pending(load_tick(base))
                return rebuilt
            return 0
    except OrgBusy:
        tell("an engine is running: the history begins with its next tick", style="yellow")
        return 0
