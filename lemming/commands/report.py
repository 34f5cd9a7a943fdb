"""`lemming report`: the page as files that open from disk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lemming.commands.backup import size_in_words
from lemming.commands.following import Ticks
from lemming.commands.options import AsJson, option
from lemming.commands.org import find_org
from lemming.commands.screen import counted, one_line, show, show_json, tell, told_as_it_goes


def report(
    ctx: typer.Context,
    html: Annotated[
        Path,
        option("--html DIR", "Where to write it: a new folder, or an earlier report."),
    ],
    ticks: Ticks = None,
    as_json: AsJson = False,
) -> None:
    """Write what `lemming dash` shows as files that open from disk, without a server, to keep or to send.

    It holds the newest 50 ticks, or those that --ticks names (at most 500), and says what is left out. Who
    gets it reads what the agents read and wrote, prompts and files included. It only shows: nothing in it
    changes the organisation. The same organisation gives the same bytes, as far as nobody goes by the clock.

    \b
    Examples:
      lemming report --html ../report
      lemming report --html ../report --ticks 100..200
      lemming report --html ../report --json | jq -r .page
    """
    from lemming.dashboard.report import write_report

    with told_as_it_goes("writing") as progress:
        made = write_report(find_org(ctx), html, ticks, progress=progress)
    page = made.folder / "index.html"
    if as_json:
        facts = {"folder": str(made.folder), "page": str(page), "files": made.files}
        size = {"bytes": made.total_bytes, "ticks": made.ticks}
        show_json("report", {**facts, **size, "left_out": made.left_out})
        return
    show(str(page))
    span = f"ticks {made.ticks[0]} to {made.ticks[1]}" if made.ticks else "no tick has run yet"
    tell(f"{span}; {counted(len(made.files), 'file')}, {size_in_words(made.total_bytes)}")
    for text in made.left_out:
        tell(f"left out: {one_line(text, 200)}", style="yellow")
