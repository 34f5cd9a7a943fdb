"""Decisions of a person on a pending call, or in advance: one entry each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lemming.kernel import messages
from lemming.kernel.access.allowed_paths import Access, resolve_path
from lemming.kernel.agents import load_agent
from lemming.kernel.base.errors import ToolError, UsageError
from lemming.kernel.base.json_schema.schema_violations import describe_violations
from lemming.kernel.base.jsontext import JsonProblem, did_you_mean, parse
from lemming.kernel.journal.open_requests import SPEND
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.tools import get_toolset
from lemming.obligations.answer_fields import get_answer_schema, get_properties
from lemming.obligations.decisions import DecisionKind, is_amount, is_approval_request
from lemming.obligations.file_bindings import FILE_ARGUMENTS, compute_binding
from lemming.obligations.ledger_calls import find_pending_calls
from lemming.obligations.org_requests import OrgRequests, find_request, load_requests
from lemming.obligations.pending_actions import PatchEdit, find_call_review
from lemming.obligations.request_entries import (
    address_answer,
    choose_answerer,
    choose_person,
    require_open,
    require_reachable,
    write_payload,
)
from lemming.obligations.request_view import RequestView

Json = dict[str, Any]
_CALL_ID = re.compile(r"[0-9]+/[^/]+/[0-9]+")
_ACCESSES: Mapping[str, Access] = {"read": "read", "write": "write"}


def find_pending_request(base: OrgPath, reference: str) -> tuple[OrgRequests, RequestView, Json | None]:
    """Return the request with this id, or with a call of this id, and the pending call.

    The call is None for another kind of request. Raises `UsageError` for an unknown id.
    """
    org = Organisation.from_path(base)
    org_requests = load_requests(org)
    calls = find_pending_calls(org, org_requests.requests.unresolved_requests)
    if _CALL_ID.fullmatch(reference.strip()):
        matches = [identity for identity, call in calls.items() if call["id"] == reference.strip()]
        if not matches:
            hint = "list the pending calls with `lemming waiting`"
            raise UsageError(f"no call {reference} waits for approval", hint=hint)
        reference = matches[0]
    request = find_request(org_requests.requests, reference)
    return org_requests, request, calls.get(request.identity)


def find_approved(base: OrgPath, reference: str) -> tuple[RequestView, Json] | None:
    """Return a request and the approved call before its execution, or None.

    `--for tool` writes the decision and the gate's line: a repeated command completes the writes after a kill.
    """
    org = Organisation.from_path(base)
    requests = load_requests(org).requests
    approved = [item for item in requests if item.closed_by and item.closed_by.payload.get("decision") == "approve"]
    calls = find_pending_calls(org, approved)
    for request in approved:
        call = calls.get(request.identity)
        if call and reference.strip() in (call["id"], request.id):
            return request, call
    return None


def decide(
    base: OrgPath,
    reference: str,
    kind: DecisionKind,
    *,
    person: str | None = None,
    text: str = "",
    edits: list[str] | None = None,
    patch_edit: PatchEdit | None = None,
) -> messages.OutboxEntry:
    """Decide a pending call or a proposed plan, and return the decision's entry.

    `text`: the reason for a denial, or the result in place of the call. `edits`: arguments as `KEY=VALUE`. `patch_edit`:
    edit of the patch that the call applies. Raises `UsageError` if no action is pending, the action is already decided,
    or nobody here may decide, and `LemmingError` if a call cannot be made as it is shown.
    """
    org_requests, request, call = find_pending_request(base, reference)
    _require_undecided(request)
    author = choose_answerer(org_requests, request, person)
    decision = _call_decision(request, call, kind, text, edits or []) if call else _other_decision(request, kind, text)
    if kind == "approve" and (call or patch_edit):
        decision |= _review_patch(base, call, decision.get("args"), patch_edit)
    if call and "args" in decision:
        decision |= _bind_edited_call(base, request.asker, call, decision["args"])
    payload = {**address_answer(org_requests, request), **decision}
    schema = get_answer_schema(request)
    if schema and (violations := describe_violations(schema, decision)):
        raise UsageError("; ".join(violations), hint=f"see the expected fields with `lemming requests {request.id}`")
    return write_payload(base, author, "response", payload, is_decision=True)


def _call_decision(request: RequestView, call: Json, kind: DecisionKind, text: str, edits: list[str]) -> Json:
    match kind:
        case "approve":
            return {"decision": kind, **({"args": _apply_edits(call["args"], edits)} if edits else {})}
        case "deny":
            return {"decision": kind, **({"reason": text} if text else {})}
        case "answer" if text:
            return {"decision": kind, "answer": text}
    raise UsageError("the answer is empty", hint=f'write lemming answer {request.id} "the result"')


def _review_patch(base: OrgPath, call: Json | None, args: Json | None, edit: PatchEdit | None) -> Json:
    """Return the arguments with an edited patch, if any. Raises `LemmingError` for a call unlike its display."""
    org, review = Organisation.from_path(base), find_call_review(call["tool"]) if call else None
    if call is None or review is None:
        if edit:
            raise UsageError("only a call that applies a patch has a patch to edit", hint="write --edit KEY=VALUE")
        return {}
    if edit is None:
        review.require_sound(org, args or call["args"])
        return {}
    return {"args": review.apply_edit(org, args or call["args"], edit)}


def _bind_edited_call(base: OrgPath, asker: str, call: Json, args: Json) -> Json:
    """Return the current digests of the files named by edited arguments as `binds`, empty without a tool.

    Raises: UsageError for an invalid amount, or a path outside the asker's permissions; NotTrusted if only untrusted code
    knows the tool.
    """
    for key in args.keys() - {"of"} if call["tool"] == SPEND else ():
        if not is_amount(args[key]):
            raise UsageError(f"{key} must be more than 0, got {args[key]!r}", hint=f"write --edit {key}=5")
    org, settings, name = Organisation.from_path(base), load_config(base).org, call["tool"]
    shared_tool = get_toolset(settings).get(name)  # no tool file can take its name
    tool = shared_tool or get_toolset(settings, org).for_agent(asker).get(name)
    if tool is None:
        return {}
    agent, access = load_agent(org, asker), _ACCESSES.get(tool.tool_class)
    for key in FILE_ARGUMENTS & args.keys() if access else ():
        if access and args[key] != call["args"].get(key) and isinstance(args[key], str):
            try:
                resolve_path(agent, Path(org.base), args[key], access, caller=name)
            except ToolError as error:
                raise UsageError(f"{key}: {error.message}", hint=error.hint) from error
    # Bound at the decision: the person approved the contents of the files as they are now.
    return {"binds": compute_binding(agent, Path(org.base), tool.tool_class, args, {}).files}


def _other_decision(request: RequestView, kind: DecisionKind, text: str) -> Json:
    """Return the decision on another kind of request, by the values in the request's schema."""
    if is_approval_request(request.entry.payload):
        hint = f"remove it from the list with `lemming cancel {request.id}`"
        raise UsageError("the request only shows a call; it does not ask for approval", hint=hint)
    field = get_properties(get_answer_schema(request)).get("decision")
    listed = field.get("enum") if isinstance(field, dict) else None
    values = ("deny", "reject", "refuse") if kind == "deny" else (kind,)
    decision_value = next((value for value in values if isinstance(listed, list) and value in listed), None)
    if decision_value is None:
        hint = f"lemming answer {request.id} TEXT, or --refuse"
        raise UsageError("the request asks for an answer, not for approval", hint=hint)
    names = get_properties(get_answer_schema(request))
    reason = next((name for name in ("reason", "reasons", "text") if name in names), "text")
    return {"decision": decision_value, **({reason: text} if text else {})}


def _require_undecided(request: RequestView) -> None:
    """Raise `UsageError` with the first decider: a second decision has no effect."""
    if request.is_open or not request.closed_by or not is_approval_request(request.entry.payload):
        return require_open(request)
    decision = request.closed_by.payload.get("decision", "deny")
    raise UsageError(
        f"the request is already decided: {request.closed_by.agent} said {decision} in tick {request.end_tick}",
        hint=f"lemming requests {request.id}",
    )


def _apply_edits(args: Json, edits: list[str]) -> Json:
    """Return the arguments of a call with edits, each typed as `KEY=VALUE`.

    >>> _apply_edits({'path': 'a.txt', 'lines': 3}, ['path=b.txt', 'lines=4'])
    {'path': 'b.txt', 'lines': 4}
    """
    edited = {**args}
    for edit in edits:
        key, equals, typed = edit.partition("=")
        if not equals:
            raise UsageError(f'--edit "{edit}" has no value', hint="write --edit KEY=VALUE")
        if key not in args:
            hint = did_you_mean(key, [*args]) or f"arguments: {', '.join(args)}"
            raise UsageError(f'the call has no argument "{key}"', hint=hint)
        try:
            edited[key] = typed if isinstance(args[key], str) else parse(typed)
        except JsonProblem as error:
            raise UsageError(f"{key} must be JSON: {error}", hint=f"write --edit {key}=JSON") from error
    return edited


def preapprove_call(
    base: OrgPath, agent: str, tool: str, args: Json, *, person: str | None = None
) -> messages.OutboxEntry:
    """Approve one call with exactly these arguments in advance; return the entry. Raises `UsageError` if unreachable."""
    org_requests = load_requests(base)
    author = choose_person(org_requests, person)
    require_reachable(org_requests, author, agent)
    call = {"tool": tool, "args": args}
    payload = {"target": agent, "decision": "approve", "call": call}
    return write_payload(base, author, "response", payload, is_decision=True)
