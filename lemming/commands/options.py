"""Parameters that several commands share, and what the shell completes for them."""

from __future__ import annotations

from typing import Annotated

import typer

from lemming.commands.org import find_org
from lemming.commands.screen import show_text
from lemming.errors import NotAnOrg
from lemming.paths import AGENT_NAME


def noun(about: str) -> typer.Typer:
    """Return an empty group of commands, for a module to fill. Alone it shows its help."""
    group = typer.Typer(rich_markup_mode=None, add_completion=False)

    @group.callback(help=about, invoke_without_command=True)
    def show_help(ctx: typer.Context) -> None:
        if ctx.invoked_subcommand is None:
            show_text(ctx.get_help())

    return group


def agent_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the agents whose names begin as typed, for the shell.

    Only names that an agent may have: some shells would run what stands in others.
    """
    from lemming.agents import agent_folders

    try:
        base = find_org(ctx)
    except NotAnOrg:
        return []
    return [name for name in agent_folders(base) if name.startswith(incomplete) and AGENT_NAME.match(name)]


AgentName = Annotated[
    str, typer.Argument(metavar="AGENT", help="An agent's name.", autocompletion=agent_names)
]
AnyAgentName = Annotated[
    str | None,
    typer.Argument(metavar="AGENT", help="An agent's name; all without one.", autocompletion=agent_names),
]
Batch = Annotated[
    bool,
    typer.Option(
        "--batch", help="Send model calls through batch APIs: about half the price, answered within a day."
    ),
]
Trust = Annotated[
    bool,
    typer.Option("--trust", help="Agree, for this run, to what it does outside its folder: `lemming trust`."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Say nothing unless something goes wrong.")]
