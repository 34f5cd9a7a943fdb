"""Each command, view and help text run on an organisation, in one process: what a plain organisation must offer.

As a program, `python command_matrix.py ORG` prints a JSON object: the exit status and the end of the output by
command, view or request to the page. The organisation has the agents ada and human, and one of its
agents has written an entry.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

TAIL_CHARS = 2000
RUNS = ("run-once --quiet", "run-forever --max-ticks 2 --interval 0 --quiet")
SCREENS = (
    "status", "status --json", "check", "validate", "doctor", "verify", "findings", "agents list", "agents show ada",
    "schedule", "requests", "requests --json", "waiting", "cost", "cost --by model", "why {entry}", "logs", "events",
    "export metrics", "models list --no-servers", "tools list", "history on", "history", "tick 1", "inbox ada", "outbox ada",
    "prompt ada", "memory list ada", "credits show", "agents graph", "replay", "diff 1 2", "trust", "export schema resume",
    "export schema output", "export org", "export report --output {base}-report", "send hello --as human", "repair",
)  # fmt: skip
VIEWS: Mapping[str, Mapping[str, str]] = {"agent": {"name": "ada"}, "why": {"target": "{entry}"}}
"""Parameters of views that need some."""
PAGES = ("/", "/api/header", "/api/feed")


def run_command(arguments: list[str]) -> tuple[int, str]:
    """Return the exit status of a command and its output."""
    from lemming.cli import run

    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        status = run(arguments)
    return status, output.getvalue()


def run_all(base: Path) -> Iterator[tuple[str, int, str]]:
    """Yield the name of each command, view and page with its status, 0 for success, and its output.

    Raises what a view raises that is no error of LeMMing.
    """
    entry = next(base.glob("agents/*/outbox/*.json")).relative_to(base).as_posix()
    for command in (*RUNS, *SCREENS):
        yield (command, *run_command(["-C", str(base), *command.format(base=base, entry=entry).split()]))
    yield from _build_views(base, entry)
    yield from _load_pages(base)
    yield from _print_help()


def _build_views(base: Path, entry: str) -> Iterator[tuple[str, int, str]]:
    from lemming.kernel.base.errors import LemmingError
    from lemming.queries.views.view_registry import VIEWS as NAMES
    from lemming.queries.views.view_registry import build_view

    for name in NAMES:
        parameters = {key: value.format(entry=entry) for key, value in VIEWS.get(name, {}).items()}
        try:
            yield f"view {name}", 0, json.dumps(build_view(base, name, parameters))
        except LemmingError as error:  # the page shows it
            yield f"view {name}", 1, str(error)


def _load_pages(base: Path) -> Iterator[tuple[str, int, str]]:
    from lemming.dashboard.page_server import serve_page

    with serve_page(base, port=0, token="token") as address:
        for path in PAGES:
            yield (f"page {path}", *_load_page(urlsplit(address).netloc, path))


def _load_page(place: str, path: str) -> tuple[int, str]:
    with contextlib.closing(HTTPConnection(place, timeout=60)) as connection:
        connection.request("GET", path, headers={"Authorization": "Bearer token"})
        response = connection.getresponse()
        text = response.read().decode()
    return 0 if response.status == 200 else response.status, text


def _print_help() -> Iterator[tuple[str, int, str]]:
    from lemming.commands.command_table import COMMANDS, SUBCOMMANDS

    yield ("--help", *run_command(["--help"]))
    names = [name for section in COMMANDS.values() for name in section]
    for name in (*names, *(f"{group} {name}" for group, inner in SUBCOMMANDS.items() for name in inner)):
        yield (f"{name} --help", *run_command([*name.split(), "--help"]))


if __name__ == "__main__":
    results = {name: (status, text[-TAIL_CHARS:]) for name, status, text in run_all(Path(sys.argv[1]))}
    print(json.dumps(results))
