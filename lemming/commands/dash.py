"""`lemming dash`: the organisation on a page in the browser, live."""

from __future__ import annotations

import sys
import webbrowser
from contextlib import ExitStack
from importlib.util import find_spec
from typing import Annotated
from urllib.parse import urlsplit

import typer

from lemming.agents import survey_agents
from lemming.base.errors import UsageError
from lemming.commands.options import AsJson, AsPerson, option
from lemming.commands.org import find_org, require_folder
from lemming.commands.screen import show, show_json, tell
from lemming.commands.stopping import stop_on_signals
from lemming.org.config import load_config
from lemming.org.organisation import OrgPath
from lemming.tick.plan import people_in

NEEDED = ("starlette", "uvicorn")
INSTALL = "pip install 'lemming-engine[dash]'"


def dash(
    ctx: typer.Context,
    port: Annotated[int | None, option("--port PORT", "Where to listen; 0: any.", min=0, max=65535)] = None,
    read_only: Annotated[bool, option("--read-only", "Look only.")] = False,
    no_open: Annotated[bool, option("--no-open", "Do not open a browser.")] = False,
    keep_token: Annotated[
        bool, option("--keep-token", "Let in who was let in before: tabs come back after a restart.")
    ] = False,
    person: AsPerson = None,
    as_json: AsJson = False,
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
    base = find_org(ctx)
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
        if as_json:
            show_json("page", {"address": address, "org": str(base)})
        else:
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
