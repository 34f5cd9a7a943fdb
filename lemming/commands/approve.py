"""`lemming approve`: a person approves a call that waits for it."""

from __future__ import annotations

from typing import Annotated

import typer

from lemming.base.errors import UsageError
from lemming.capabilities.approvals.always import let_pass, require_asking
from lemming.capabilities.approvals.deciding import approve_ahead, decide, find_waiting
from lemming.commands.deciding import decide_all, tell_decided, tell_what_else, that_wait
from lemming.commands.options import AsJson, AsPerson, argument, option
from lemming.commands.org import find_org
from lemming.commands.screen import tell
from lemming.commands.typed import object_typed
from lemming.commands.whole import show_call
from lemming.org.organisation import OrgPath


def approve(
    ctx: typer.Context,
    reference: Annotated[
        str | None, argument("ID", "A request's id, the beginning of it, or its call's.")
    ] = None,
    edit: Annotated[
        list[str] | None, option("--edit KEY=VALUE", "Make it with this argument. May be repeated.")
    ] = None,
    for_: Annotated[
        str | None, option("--for tool", '"tool": this gate asks no more about the agent\'s calls of it.')
    ] = None,
    every: Annotated[bool, option("--all", "All that wait, of one tool.")] = False,
    tool: Annotated[str | None, option("--tool TOOL", "Which, with --all.")] = None,
    agent: Annotated[str | None, option("--agent AGENT", "Whose, with --all.")] = None,
    yes: Annotated[bool, option("--yes", "With --all: do not list and ask first.")] = False,
    ahead: Annotated[
        tuple[str, str, str] | None,
        option("--ahead AGENT TOOL ARGS", "In advance, once; ARGS is a JSON object."),
    ] = None,
    person: AsPerson = None,
    as_json: AsJson = False,
) -> None:
    """Approve a call that waits for it, or a plan. Prints the path of the entry that says so.

    It is for exactly this call, once. If a file that it names has changed since, it is asked again. Of
    several calls of one turn all have to be decided before the first is made; this says which are not.

    \b
    Examples:
      lemming approve 3fa9c1
      lemming approve 3fa9c1 --edit "command=git push --dry-run"
      lemming approve 3fa9c1 --for tool
      lemming approve --all --tool file_write
      lemming approve --ahead ada shell '{"command": "git push"}'
    """
    base = find_org(ctx)
    chosen = [it for it, is_given in (("ID", reference), ("--all", every), ("--ahead", ahead)) if is_given]
    if len(chosen) != 1:
        hint = "lemming approve ID, or --all --tool TOOL, or --ahead AGENT TOOL ARGS"
        raise UsageError(
            "what is to be approved?" if not chosen else f"{chosen[0]} or {chosen[1]}", hint=hint
        )
    if for_ not in (None, "tool"):
        raise UsageError(f'--for "{for_}"', hint="--for tool: it may be called from now on")
    if ahead:
        entry = approve_ahead(
            base, ahead[0], ahead[1], object_typed(ahead[2], "ARGS", '{"command": "git push"}'), person=person
        )
        tell_decided(entry, as_json=as_json)
    elif every:
        _approve_all(base, tool, agent, person, yes=yes, as_json=as_json)
    elif reference:
        _approve_one(base, reference, person, edit or [], is_for_tool=for_ == "tool", as_json=as_json)


def _approve_one(
    base: OrgPath, reference: str, person: str | None, edits: list[str], *, is_for_tool: bool, as_json: bool
) -> None:
    _, request, call = find_waiting(base, reference)
    if is_for_tool and call is None:
        raise UsageError("no call waits there that a gate could let pass", hint="lemming approve ID")
    if is_for_tool and call:
        require_asking(base, call, request.asker)
    entry = decide(base, reference, "approve", person=person, edits=edits)
    tell_decided(entry, as_json=as_json)
    if call:
        tell_what_else(base, request.identity)
    if is_for_tool and call:
        for line in let_pass(base, call, request.asker).told():
            tell(line)


def _approve_all(
    base: OrgPath, tool: str | None, agent: str | None, person: str | None, *, yes: bool, as_json: bool
) -> None:
    if tool is None:
        raise UsageError("--all of which tool?", hint="lemming approve --all --tool file_write")
    items = that_wait(base, tool=tool, agent=agent, person=person)
    for item in items if not as_json else ():
        show_call(item.call or {}, [(item.person, item.at_deadline)])
    for entry in decide_all(base, items, "approve", person, yes=yes):
        tell_decided(entry, as_json=as_json)
