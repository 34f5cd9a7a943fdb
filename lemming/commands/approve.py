"""`lemming approve`: a person gives leave for one call that waits for it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lemming.asking.decide import approve_ahead, decide, find_waiting
from lemming.asking.passing import let_pass, require_asking
from lemming.commands.options import AsJson, AsPerson
from lemming.commands.org import find_org
from lemming.commands.screen import show, show_json, tell
from lemming.commands.whole import show_call
from lemming.errors import UsageError
from lemming.files.jsontext import JsonProblem, parse
from lemming.inspect.waiting import WaitsForPerson
from lemming.inspect.waiting import waiting as what_waits
from lemming.messages import OutboxEntry
from lemming.organisation import OrgPath


def approve(
    ctx: typer.Context,
    reference: Annotated[
        str | None, typer.Argument(metavar="ID", help="A request's id, the beginning of it, or its call's.")
    ] = None,
    edit: Annotated[
        list[str] | None,
        typer.Option("--edit", metavar="KEY=VALUE", help="Make it with this argument. May be repeated."),
    ] = None,
    for_: Annotated[
        str | None,
        typer.Option(
            "--for", metavar="tool", help='"tool": this gate asks no more about the agent\'s calls of it.'
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All that wait, of one tool.")] = False,
    tool: Annotated[str | None, typer.Option("--tool", metavar="TOOL", help="Which, with --all.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --all: do not list and ask first.")] = False,
    ahead: Annotated[
        tuple[str, str, str] | None,
        typer.Option(
            "--ahead", metavar="AGENT TOOL ARGS", help="Leave in advance, once; ARGS is a JSON object."
        ),
    ] = None,
    person: AsPerson = None,
    as_json: AsJson = False,
) -> None:
    """Give leave for a call that waits for it, or approve a plan. Prints the path of the entry that says so.

    Leave is for exactly this call, once. If a file that it names has changed since, it is asked again.

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
        _tell(approve_ahead(base, ahead[0], ahead[1], _object(ahead[2]), person=person), as_json)
    elif every:
        _approve_all(base, tool, person, yes=yes, as_json=as_json)
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
    _tell(entry, as_json)
    if is_for_tool and call:
        for line in let_pass(base, call, request.asker).told():
            tell(line)


def _approve_all(base: OrgPath, tool: str | None, person: str | None, *, yes: bool, as_json: bool) -> None:
    if tool is None:
        raise UsageError("--all of which tool?", hint="lemming approve --all --tool file_write")
    items = _of_tool(base, tool, person)
    if not items:
        raise UsageError(f"no call of {tool} waits for leave", hint="`lemming approvals` lists all that wait")
    for item in items if not as_json else ():
        show_call(item.call or {}, [(item.person, item.at_deadline)])
    if not yes and not typer.confirm(f"Approve these {len(items)}?", err=True):
        raise typer.Exit(1)
    for item in items:
        _tell(decide(base, item.identity, "approve", person=person or item.person), as_json)


def _of_tool(base: OrgPath, tool: str, person: str | None) -> list[WaitsForPerson]:
    """Return the calls of a tool that wait, each once: several persons may be asked."""
    waiting = [it for it in what_waits(base) if it.call and it.call["tool"] == tool]
    found = {it.identity: it for it in reversed(waiting) if person in (None, it.person)}
    return [*reversed(found.values())]


def _object(typed: str) -> dict[str, Any]:
    try:
        args = parse(typed)
    except JsonProblem as error:
        raise UsageError(f"ARGS is no JSON: {error}", hint="""such as '{"command": "git push"}'""") from error
    if not isinstance(args, dict):
        raise UsageError("ARGS is no JSON object", hint="""such as '{"command": "git push"}'""")
    return args


def _tell(entry: OutboxEntry, as_json: bool) -> None:
    show_json("entry", entry.as_json()) if as_json else show(entry.file)
