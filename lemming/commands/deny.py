"""`lemming deny`: a person says no to a call that waits for approval, or to all of some kind."""

from __future__ import annotations

from typing import Annotated

import typer

from lemming.base.errors import UsageError
from lemming.capabilities.approvals.deciding import decide
from lemming.commands.deciding import decide_all, tell_decided, that_wait
from lemming.commands.options import AsJson, AsPerson
from lemming.commands.org import find_org
from lemming.commands.whole import show_folded


def deny(
    ctx: typer.Context,
    reference: Annotated[
        str | None, typer.Argument(metavar="ID", help="A request's id, the beginning of it, or its call's.")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why not; the agent is told.")] = "",
    every: Annotated[bool, typer.Option("--all", help="All calls and entries that wait.")] = False,
    tool: Annotated[
        str | None, typer.Option("--tool", metavar="TOOL", help="With --all: of this tool.")
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="AGENT", help="With --all: of this agent.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --all: do not list and ask first.")] = False,
    person: AsPerson = None,
    as_json: AsJson = False,
) -> None:
    """Say no to a call that waits for approval, or to a plan. Prints the path of the entry that says so.

    \b
    Examples:
      lemming deny 3fa9c1 --reason "not on a Friday"
      lemming deny --all --agent ada
    """
    base = find_org(ctx)
    if every == bool(reference):
        raise UsageError(
            "what is to be denied?", hint="lemming deny ID, or --all [--tool TOOL] [--agent AGENT]"
        )
    if (tool or agent) and not every:
        raise UsageError("--tool and --agent are for --all", hint="lemming deny --all --tool TOOL")
    if reference:
        tell_decided(decide(base, reference, "deny", person=person, text=reason), as_json=as_json)
        return
    items = that_wait(base, tool=tool, agent=agent, person=person)
    for item in items if not as_json else ():
        show_folded(item.id, item.line)
    for entry in decide_all(base, items, "deny", person, text=reason, yes=yes):
        tell_decided(entry, as_json=as_json)
