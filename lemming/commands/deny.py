"""`lemming deny`: a person says no to a call that waits for approval, or to all of some kind."""

from __future__ import annotations

from typing import Annotated

import typer

from lemming.base.errors import UsageError
from lemming.capabilities.approvals.deciding import decide
from lemming.commands.deciding import decide_all, tell_decided, that_wait
from lemming.commands.options import AsJson, AsPerson, argument, option
from lemming.commands.org import find_org
from lemming.commands.whole import show_folded


def deny(
    ctx: typer.Context,
    reference: Annotated[
        str | None, argument("ID", "A request's id, the beginning of it, or its call's.")
    ] = None,
    reason: Annotated[str, option("--reason TEXT", "Why not; the agent is told.")] = "",
    every: Annotated[bool, option("--all", "All calls and entries that wait.")] = False,
    tool: Annotated[str | None, option("--tool TOOL", "With --all: of this tool.")] = None,
    agent: Annotated[str | None, option("--agent AGENT", "With --all: of this agent.")] = None,
    yes: Annotated[bool, option("--yes", "With --all: do not list and ask first.")] = False,
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
