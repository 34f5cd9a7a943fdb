"""`lemming approve` and `lemming deny`: decisions of a person about waiting calls and plans."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lemming.commands.command_context import AsPerson, CommandContext, argument, option, parse_json_object
from lemming.commands.terminal import print_notice
from lemming.commands.waiting import print_call, print_wrapped
from lemming.kernel.base.errors import UsageError
from lemming.kernel.files import fs
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.plugins.capability_loader import require_fact
from lemming.obligations.decisions import DecisionKind
from lemming.obligations.ledger_calls import find_blocking_requests
from lemming.obligations.org_requests import load_requests
from lemming.obligations.pending_actions import PatchEdit, find_call_review
from lemming.obligations.request_view import RequestView
from lemming.obligations.waiting_items import list_person_inbox as what_waits
from lemming.obligations.write_decisions import decide, find_approved, find_pending_request, preapprove_call

PATCH_LIMIT_BYTES = 256 << 20


def _decide_all(
    context: CommandContext,
    decision: DecisionKind,
    *,
    tool: str | None,
    agent: str | None,
    person: str | None,
    text: str = "",
    skip_confirmation: bool,
) -> None:
    """List the waiting calls, each once even if several people may decide, and decide about them after a confirmation."""
    base = context.org
    waiting = [item for item in what_waits(base) if item.call and tool in (None, item.call["tool"])]
    waiting = [item for item in waiting if person in (None, item.person) and agent in (None, item.asker)]
    items = [*reversed({item.identity: item for item in reversed(waiting)}.values())]
    if not items:
        subject = f"no call{f' of {tool}' if tool else ''}{f' by {agent}' if agent else ''}"
        raise UsageError(f"{subject} waits for approval", hint="list the pending calls with `lemming waiting`")
    for item in items if not context.as_json else ():
        if decision == "approve":
            request = find_pending_request(base, item.identity)[1]
            print_call(base, request, item.call or {}, [(item.person, item.at_deadline)])
        else:
            print_wrapped(item.id, item.summary_line)
    if not skip_confirmation and not typer.confirm(f"{decision.capitalize()} these {len(items)}?", err=True):
        raise typer.Exit(1)
    for item in items:
        context.print_entry(decide(base, item.identity, decision, person=person or item.person, text=text))


def approve(
    context: CommandContext,
    reference: Annotated[str | None, argument("ID", "Id of the request or of its call, or a prefix.")] = None,
    edit: Annotated[
        list[str] | None, option("--edit KEY=VALUE", "Change an argument of the call before it runs. Repeatable.")
    ] = None,
    patch: Annotated[
        str | None, option("--patch FILE", "Merge the patch in this file instead of the call's patch.")
    ] = None,
    for_: Annotated[
        str | None, option("--for tool", 'With "tool": stop asking about this agent\'s calls of the tool.')
    ] = None,
    every: Annotated[bool, option("--all", "Approve all waiting calls of one tool.")] = False,
    tool: Annotated[str | None, option("--tool TOOL", "With --all: the tool.")] = None,
    agent: Annotated[str | None, option("--agent AGENT", "With --all: the agent that makes the calls.")] = None,
    yes: Annotated[bool, option("--yes", "With --all: skip the list and the confirmation.")] = False,
    ahead: Annotated[
        tuple[str, str, str] | None,
        option("--in-advance AGENT TOOL ARGS", "Approve one future call; ARGS is a JSON object."),
    ] = None,
    person: AsPerson = None,
) -> None:
    """Approve a waiting call or plan. Prints the path of the new entry.

    An approval covers exactly this call, once. If a file named in the call has changed since, the call needs
    a new approval. When a turn makes several calls, every call needs a decision before the first runs; the
    command lists the open ones.

    \b
    Examples:
      lemming approve 3fa9c1
      lemming approve 3fa9c1 --edit "command=git push --dry-run"
      lemming approve 3fa9c1 --patch edited.patch
      lemming approve 3fa9c1 --for tool
      lemming approve --all --tool file_write
      lemming approve --in-advance ada shell '{"command": "git push"}'
    """
    base = context.org
    modes = [name for name, value in (("ID", reference), ("--all", every), ("--in-advance", ahead)) if value]
    if len(modes) != 1:
        hint = "lemming approve ID, or --all --tool TOOL, or --in-advance AGENT TOOL ARGS"
        problem = f"{modes[0]} and {modes[1]} exclude each other" if modes else "no call is named"
        raise UsageError(problem, hint=hint)
    if for_ not in (None, "tool"):
        hint = "write --for tool to approve all later calls of the tool"
        raise UsageError(f'--for must be "tool", got "{for_}"', hint=hint)
    if patch and not reference:
        raise UsageError("--patch requires an ID", hint="lemming approve ID --patch FILE")
    patch_edit = None
    if patch:
        try:
            patch_edit = PatchEdit(patch=fs.read_bytes(patch, PATCH_LIMIT_BYTES))
        except OSError as error:
            raise UsageError(f"{patch} must be a readable file, got {error.strerror}") from error
        if not patch_edit.patch.strip():
            raise UsageError(f"{patch} must hold a patch, got nothing", hint="lemming deny ID --reason TEXT")
    if ahead:
        args = parse_json_object(ahead[2], "ARGS", '{"command": "git push"}')
        context.print_entry(preapprove_call(base, ahead[0], ahead[1], args, person=person))
    elif every and tool is None:
        raise UsageError("--all requires --tool", hint="lemming approve --all --tool file_write")
    elif every:
        _decide_all(context, "approve", tool=tool, agent=agent, person=person, skip_confirmation=yes)
    elif reference:
        _approve_one(context, reference, person, edit or [], patch_edit, is_for_tool=for_ == "tool")


def _approve_one(
    context: CommandContext,
    reference: str,
    person: str | None,
    edits: list[str],
    patch_edit: PatchEdit | None,
    *,
    is_for_tool: bool,
) -> None:
    base = context.org
    if is_for_tool and (approved := find_approved(base, reference)):
        _add_standing_approval(base, *approved)
        return
    _, request, call = find_pending_request(base, reference)
    if is_for_tool and call is None:
        raise UsageError("no call of this tool is pending at a gate", hint="lemming approve ID")
    if is_for_tool and call:
        require_fact("gates.require_gate_exists")(base, call, request.asker)
    entry = decide(base, reference, "approve", person=person, edits=edits, patch_edit=patch_edit)
    context.print_entry(entry)
    if call and patch_edit and (review := find_call_review(call["tool"])):
        print_notice(f"edited: {review.describe(entry.payload['args'])}")
    if call and (remaining := find_blocking_requests(base, load_requests(base), request.identity)):
        names = ", ".join(f"{other.id} ({' or '.join(other.assignees) or 'nobody'})" for other in remaining)
        print_notice(f"it runs when these calls of the same turn are also decided: {names}")
    if is_for_tool and call:
        _add_standing_approval(base, request, call)


def _add_standing_approval(base: OrgPath, request: RequestView, call: dict[str, Any]) -> None:
    standing_approval = require_fact("gates.add_standing_approval")(base, call, request.asker)
    for line in standing_approval.describe(is_written=True):
        print_notice(line)


def deny(
    context: CommandContext,
    reference: Annotated[str | None, argument("ID", "Id of the request or of its call, or a prefix.")] = None,
    reason: Annotated[str, option("--reason TEXT", "Reason that the agent is told.")] = "",
    every: Annotated[bool, option("--all", "Deny all waiting calls and entries.")] = False,
    tool: Annotated[str | None, option("--tool TOOL", "With --all: only calls of this tool.")] = None,
    agent: Annotated[str | None, option("--agent AGENT", "With --all: only calls of this agent.")] = None,
    yes: Annotated[bool, option("--yes", "With --all: skip the list and the confirmation.")] = False,
    person: AsPerson = None,
) -> None:
    """Deny a waiting call or plan. Prints the path of the new entry.

    \b
    Examples:
      lemming deny 3fa9c1 --reason "not on a Friday"
      lemming deny --all --agent ada
    """
    if every == bool(reference):
        raise UsageError("no call is named", hint="lemming deny ID, or --all [--tool TOOL] [--agent AGENT]")
    if (tool or agent) and not every:
        raise UsageError("--tool and --agent require --all", hint="lemming deny --all --tool TOOL")
    if reference:
        context.print_entry(decide(context.org, reference, "deny", person=person, text=reason))
        return
    _decide_all(context, "deny", tool=tool, agent=agent, person=person, text=reason, skip_confirmation=yes)
