"""`lemming approve` and `lemming deny`: a person decides about calls that wait for it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lemming.capabilities.approvals.always import let_pass, require_asking
from lemming.capabilities.approvals.deciding import approve_ahead, decide, find_approved, find_waiting
from lemming.capabilities.approvals.waiting import Word
from lemming.capabilities.approvals.waiting_calls import waits_beside
from lemming.capabilities.requests.now import requests_now
from lemming.capabilities.requests.view import RequestView
from lemming.capabilities.requests.waiting import WaitsForPerson
from lemming.capabilities.requests.waiting import waiting as what_waits
from lemming.commands.options import AsPerson, Here, argument, object_typed, option
from lemming.commands.screen import tell
from lemming.commands.waiting import show_call, show_folded
from lemming.kernel.base.errors import UsageError
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.organisation import Organisation, OrgPath


def that_wait(
    base: OrgPath, *, tool: str | None, agent: str | None, person: str | None
) -> list[WaitsForPerson]:
    """Return the calls that wait, each once though several may be asked; raise `UsageError` for none."""
    waiting = [it for it in what_waits(base) if it.call and tool in (None, it.call["tool"])]
    waiting = [it for it in waiting if person in (None, it.person) and agent in (None, it.asker)]
    found = {it.identity: it for it in reversed(waiting)}
    if not found:
        which = f"no call{f' of {tool}' if tool else ''}{f' by {agent}' if agent else ''}"
        raise UsageError(f"{which} waits for approval", hint="`lemming waiting` lists all that wait")
    return [*reversed(found.values())]


def decide_all(
    base: OrgPath, items: list[WaitsForPerson], word: Word, person: str | None, *, text: str = "", yes: bool
) -> list[OutboxEntry]:
    """Decide about all of these, once the person at the keyboard has said so."""
    if not yes and not typer.confirm(f"{word.capitalize()} these {len(items)}?", err=True):
        raise typer.Exit(1)
    return [decide(base, item.identity, word, person=person or item.person, text=text) for item in items]


def tell_what_else(base: OrgPath, identity: str) -> None:
    """Say what has to be decided or answered too before a call that was approved is made."""
    org = Organisation.at(base)
    others = waits_beside(org, requests_now(org), identity)
    if others:
        named = ", ".join(f"{it.id} ({' or '.join(it.holders) or 'nobody'})" for it in others)
        tell(f"it is made once these are decided or answered too, as one turn asked for all of them: {named}")


def approve(
    here: Here,
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
    base = here.org
    chosen = [it for it, is_given in (("ID", reference), ("--all", every), ("--ahead", ahead)) if is_given]
    if len(chosen) != 1:
        hint = "lemming approve ID, or --all --tool TOOL, or --ahead AGENT TOOL ARGS"
        raise UsageError(
            "what is to be approved?" if not chosen else f"{chosen[0]} or {chosen[1]}", hint=hint
        )
    if for_ not in (None, "tool"):
        raise UsageError(f'--for "{for_}"', hint="--for tool: it may be called from now on")
    if ahead:
        args = object_typed(ahead[2], "ARGS", '{"command": "git push"}')
        here.shows_entry(approve_ahead(base, ahead[0], ahead[1], args, person=person))
    elif every:
        _approve_all(here, tool, agent, person, yes=yes)
    elif reference:
        _approve_one(here, reference, person, edit or [], is_for_tool=for_ == "tool")


def _approve_one(
    here: Here, reference: str, person: str | None, edits: list[str], *, is_for_tool: bool
) -> None:
    base = here.org
    if is_for_tool and (approved := find_approved(base, reference)):
        _let_pass(base, *approved)
        return
    _, request, call = find_waiting(base, reference)
    if is_for_tool and call is None:
        raise UsageError("no call waits there that a gate could let pass", hint="lemming approve ID")
    if is_for_tool and call:
        require_asking(base, call, request.asker)
    entry = decide(base, reference, "approve", person=person, edits=edits)
    here.shows_entry(entry)
    if call:
        tell_what_else(base, request.identity)
    if is_for_tool and call:
        _let_pass(base, request, call)


def _let_pass(base: OrgPath, request: RequestView, call: dict[str, Any]) -> None:
    for line in let_pass(base, call, request.asker).in_words(is_written=True):
        tell(line)


def _approve_all(here: Here, tool: str | None, agent: str | None, person: str | None, *, yes: bool) -> None:
    if tool is None:
        raise UsageError("--all of which tool?", hint="lemming approve --all --tool file_write")
    items = that_wait(here.org, tool=tool, agent=agent, person=person)
    for item in items if not here.as_json else ():
        show_call(item.call or {}, [(item.person, item.at_deadline)])
    for entry in decide_all(here.org, items, "approve", person, yes=yes):
        here.shows_entry(entry)


def deny(
    here: Here,
    reference: Annotated[
        str | None, argument("ID", "A request's id, the beginning of it, or its call's.")
    ] = None,
    reason: Annotated[str, option("--reason TEXT", "Why not; the agent is told.")] = "",
    every: Annotated[bool, option("--all", "All calls and entries that wait.")] = False,
    tool: Annotated[str | None, option("--tool TOOL", "With --all: of this tool.")] = None,
    agent: Annotated[str | None, option("--agent AGENT", "With --all: of this agent.")] = None,
    yes: Annotated[bool, option("--yes", "With --all: do not list and ask first.")] = False,
    person: AsPerson = None,
) -> None:
    """Say no to a call that waits for approval, or to a plan. Prints the path of the entry that says so.

    \b
    Examples:
      lemming deny 3fa9c1 --reason "not on a Friday"
      lemming deny --all --agent ada
    """
    base = here.org
    if every == bool(reference):
        raise UsageError(
            "what is to be denied?", hint="lemming deny ID, or --all [--tool TOOL] [--agent AGENT]"
        )
    if (tool or agent) and not every:
        raise UsageError("--tool and --agent are for --all", hint="lemming deny --all --tool TOOL")
    if reference:
        here.shows_entry(decide(base, reference, "deny", person=person, text=reason))
        return
    items = that_wait(base, tool=tool, agent=agent, person=person)
    for item in items if not here.as_json else ():
        show_folded(item.id, item.line)
    for entry in decide_all(base, items, "deny", person, text=reason, yes=yes):
        here.shows_entry(entry)
