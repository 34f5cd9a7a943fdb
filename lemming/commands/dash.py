"""`lemming dash` and `lemming export report`: the dashboard, live or as static files."""

from __future__ import annotations

import sys
import webbrowser
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from lemming.commands.backup import format_size
from lemming.commands.command_context import AsPerson, CommandContext, option
from lemming.commands.events import Ticks
from lemming.commands.send import require_person
from lemming.commands.signals import stop_on_signals
from lemming.commands.terminal import (
    format_count,
    one_line,
    print_data,
    print_json,
    print_notice,
    print_warning,
    report_progress,
)
from lemming.kernel.org.config import load_config
from lemming.libraries.optional_packages import require_server


def dash(
    context: CommandContext,
    port: Annotated[
        int | None, option("--port PORT", "Port to listen on; 0 picks a free port.", min=0, max=65535)
    ] = None,
    read_only: Annotated[bool, option("--read-only", "Disable all actions.")] = False,
    no_open: Annotated[bool, option("--no-open", "Do not open a browser.")] = False,
    keep_token: Annotated[
        bool, option("--keep-token", "Reuse the last access token, so open tabs reconnect after a restart.")
    ] = False,
    person: AsPerson = None,
) -> None:
    """Open the live dashboard in the browser: items for you, activity of agents, messages.

    The dashboard works from files alone: with or without a running engine, on a copied folder or on a fork.
    Only this machine can reach the page, and the printed address contains the access token. Ctrl-C stops the
    server.

    \b
    Examples:
      lemming dash
      lemming dash --read-only
      lemming dash --port 0 --no-open
    """
    base = context.org
    require_server("the dashboard")
    if person is not None:
        require_person(base, person, load_config(base))
    from lemming.dashboard.page_server import (
        USUAL_PORT,
        StoredToken,
        load_token,
        serve_page,
        serve_private_page,
        store_token,
    )

    saved_token = load_token(base.base) if keep_token else StoredToken("")
    with (
        stop_on_signals(quiet=True) as switch,
        serve_page(
            base.base,
            port=port,
            person=person,
            is_read_only=read_only,
            token=saved_token.token,
            default_port=saved_token.port or USUAL_PORT,
            is_token_stored=keep_token,
        ) as address,
        ExitStack() as files,
    ):
        if keep_token:
            store_token(base.base, StoredToken(saved_token.token, urlsplit(address).port or 0))
        print_json("page", {"address": address, "org": str(base)})
        print_data(address)
        print_notice("Ctrl-C stops it. Anybody with this address can see everything and act as you while it runs")
        sys.stdout.flush()
        if sys.stdout.isatty() and not no_open:
            webbrowser.open(files.enter_context(serve_private_page(base.base, address)))
        switch.stop.wait()


def report(
    context: CommandContext,
    html: Annotated[Path, option("--output DIR", "Output folder: a new one, or an earlier report to replace.")],
    ticks: Ticks = None,
) -> None:
    """Export the dashboard as static files that open from disk, without a server.

    The report holds the newest 50 ticks, or the ticks of --ticks (at most 500), and lists omissions. Readers
    of the report see all texts read and written by agents, prompts and files included. The report is
    read-only. The same organisation gives the same bytes, unless agents run by the clock.

    \b
    Examples:
      lemming export report --output ../report
      lemming export report --output ../report --ticks 100..200
      lemming export report --output ../report --json | jq -r .page
    """
    from lemming.dashboard.report_builder import write_report

    with report_progress("writing") as progress:
        written_report = write_report(context.org, html, ticks, progress=progress)
    page = written_report.folder / "index.html"
    facts = {"folder": str(written_report.folder), "page": str(page), "files": written_report.files}
    size = {"bytes": written_report.total_bytes, "ticks": written_report.ticks}
    print_json("report", {**facts, **size, "left_out": written_report.left_out})
    print_data(str(page))
    ticks_written = written_report.ticks
    span = f"ticks {ticks_written[0]} to {ticks_written[1]}" if ticks_written else "no tick has run yet"
    print_notice(
        f"{span}; {format_count(len(written_report.files), 'file')}, {format_size(written_report.total_bytes)}"
    )
    for text in written_report.left_out:
        print_warning(f"left out: {one_line(text, 200)}")
