"""`lemming dash` and `lemming report`: the organisation on a page, live or as files."""

from __future__ import annotations

import sys
import webbrowser
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from lemming.commands.backup import size_in_words
from lemming.commands.events import Ticks
from lemming.commands.options import AsPerson, Here, option, require_folder
from lemming.commands.screen import counted, one_line, show, show_json, tell, told_as_it_goes
from lemming.commands.stopping import stop_on_signals
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.extras import install_line
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.firing_plan import people_in

NEEDED = ("starlette", "uvicorn")
INSTALL = install_line("dash")


def dash(
    here: Here,
    port: Annotated[int | None, option("--port PORT", "Where to listen; 0: any.", min=0, max=65535)] = None,
    read_only: Annotated[bool, option("--read-only", "Look only.")] = False,
    no_open: Annotated[bool, option("--no-open", "Do not open a browser.")] = False,
    keep_token: Annotated[
        bool, option("--keep-token", "Let in who was let in before: tabs come back after a restart.")
    ] = False,
    person: AsPerson = None,
) -> None:
    """Show the organisation on a page in the browser, live: what waits for you, who does what, what was said.

    Works from files alone: while an engine runs, while none does, on a copied folder, on a fork. The page is
    for this machine only, and the address that is printed has the token that lets one in. Ctrl-C ends it.

    \b
    Examples:
      lemming dash
      lemming dash --read-only
      lemming dash --port 0 --no-open
    """
    base = here.org
    if not is_installed():
        raise UsageError(f"the page needs {' and '.join(NEEDED)}, which are not installed", hint=INSTALL)
    if person is not None:
        _require_person(base, person)
    from lemming.dashboard.serving import USUAL_PORT, page_of
    from lemming.dashboard.visits import KeptToken, keep, kept_token, private_page

    kept = kept_token(base.base) if keep_token else KeptToken("")
    with (
        stop_on_signals(quiet=True) as switch,
        page_of(
            base.base,
            port=port,
            person=person,
            is_read_only=read_only,
            token=kept.token,
            usual=kept.port or USUAL_PORT,
            is_kept=keep_token,
        ) as address,
        ExitStack() as files,
    ):
        if keep_token:
            keep(base.base, KeptToken(kept.token, urlsplit(address).port or 0))
        if not here.shows("page", {"address": address, "org": str(base)}):
            show(address)
            tell("Ctrl-C ends it; who has the address may look and answer for you, as long as it runs")
        sys.stdout.flush()
        if sys.stdout.isatty() and not no_open:
            webbrowser.open(files.enter_context(private_page(base.base, address)))
        switch.stop.wait()


def _require_person(base: OrgPath, name: str) -> None:
    require_folder(base, name)
    people = people_in(survey_agents(base), load_config(base))
    if name not in people:
        hint = f"people here: {', '.join(people) or 'none; an agent with the model key human is one'}"
        raise UsageError(f"{name} speaks for itself: a model answers for it", hint=hint)


def is_installed() -> bool:
    """Return whether what the page needs is installed."""
    return all(find_spec(name) is not None for name in NEEDED)


def report(
    here: Here,
    html: Annotated[
        Path,
        option("--html DIR", "Where to write it: a new folder, or an earlier report."),
    ],
    ticks: Ticks = None,
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
        made = write_report(here.org, html, ticks, progress=progress)
    page = made.folder / "index.html"
    if here.as_json:
        facts = {"folder": str(made.folder), "page": str(page), "files": made.files}
        size = {"bytes": made.total_bytes, "ticks": made.ticks}
        show_json("report", {**facts, **size, "left_out": made.left_out})
        return
    show(str(page))
    span = f"ticks {made.ticks[0]} to {made.ticks[1]}" if made.ticks else "no tick has run yet"
    tell(f"{span}; {counted(len(made.files), 'file')}, {size_in_words(made.total_bytes)}")
    for text in made.left_out:
        tell(f"left out: {one_line(text, 200)}", style="yellow")
