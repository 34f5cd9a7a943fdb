"""What a person decides about a call that waits, or approves in advance: one entry each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from lemming.capabilities.approvals.binding import FILE_ARGUMENTS, binds_of
from lemming.capabilities.approvals.waiting import SPEND, Word, is_amount
from lemming.capabilities.approvals.waiting_calls import waiting_calls
from lemming.capabilities.requests.entries import answerer, require_open, write_payload
from lemming.capabilities.requests.fields import properties_of, schema_for
from lemming.capabilities.requests.now import RequestsNow, find_request, requests_now
from lemming.capabilities.requests.people import person_for, require_reach
from lemming.capabilities.requests.view import RequestView
from lemming.kernel import messages
from lemming.kernel.access.allowed_paths import Access, resolve
from lemming.kernel.agents import load_agent
from lemming.kernel.base.errors import ToolError, UsageError
from lemming.kernel.base.json_schema.violations import misfits
from lemming.kernel.base.jsontext import JsonProblem, nearest, parse
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.plugins.capabilities import made_by
from lemming.kernel.tools import Tool, toolset_of

Json = dict[str, Any]
_CALL_ID = re.compile(r"[0-9]+/[^/]+/[0-9]+")


def find_waiting(base: OrgPath, reference: str) -> tuple[RequestsNow, RequestView, Json | None]:
    """Return the request that is meant, by its id or that of its call, and the call that waits.

    None for a request that asks something else. Raises `UsageError` where there is none.
    """
    org = Organisation.at(base)
    now = requests_now(org)
    calls = waiting_calls(org, now.requests.open)
    if _CALL_ID.fullmatch(reference.strip()):
        meant = [it for it, call in calls.items() if call["id"] == reference.strip()]
        if not meant:
            raise UsageError(
                f"no call {reference} waits for approval", hint="`lemming waiting` lists those that do"
            )
        reference = meant[0]
    request = find_request(now.requests, reference)
    return now, request, calls.get(request.identity)


def find_approved(base: OrgPath, reference: str) -> tuple[RequestView, Json] | None:
    """Return a request whose call is approved and not yet made, with the call; None if there is none.

    `--for tool` is two writes, the decision and the gate's line: given again, it does what a kill left out.
    """
    org = Organisation.at(base)
    approved = [it for it in requests_now(org).requests.by_identity.values() if _is_approved(it)]
    calls = waiting_calls(org, approved)
    for request in approved:
        call = calls.get(request.identity)
        if call and reference.strip() in (call["id"], request.id):
            return request, call
    return None


def _is_approved(request: RequestView) -> bool:
    return request.closed_by is not None and request.closed_by.payload.get("decision") == "approve"


def decide(
    base: OrgPath,
    reference: str,
    word: Word,
    *,
    person: str | None = None,
    text: str = "",
    edits: list[str] | None = None,
) -> messages.OutboxEntry:
    """Decide about a call that waits, or about a plan that was proposed, and return the entry.

    `text`: why not, or the result in its place; `edits`: arguments as `KEY=VALUE`. Raises `UsageError` where
    nothing waits, it is decided already, or nobody here may decide.
    """
    now, request, call = find_waiting(base, reference)
    _require_undecided(request)
    author = answerer(now, request, person)
    decision = (
        _call_decision(request, call, word, text, edits or [])
        if call
        else _other_decision(request, word, text)
    )
    if call and "args" in decision:
        _require_amounts(call, decision["args"])
        _require_reach(base, request.asker, call, decision["args"])
        binds = _binds_now(base, request.asker, call, decision["args"])
        decision |= {} if binds is None else {"binds": binds}
    payload = {
        "reply_to": now.requests.reference(request),
        "target": request.asker,
        **({"conversation": request.conversation} if request.conversation else {}),
        **decision,
    }
    schema = schema_for(request)
    if schema and (wrong := misfits(schema, decision)):
        raise UsageError("; ".join(wrong), hint=f"`lemming requests {request.id}` shows what it asks for")
    return write_payload(base, author, "response", payload, is_decision=True)


def _call_decision(request: RequestView, call: Json, word: Word, text: str, edits: list[str]) -> Json:
    match word:
        case "approve":
            return {"decision": word, **({"args": _edited(call["args"], edits)} if edits else {})}
        case "deny":
            return {"decision": word, **({"reason": text} if text else {})}
        case "answer" if text:
            return {"decision": word, "answer": text}
    raise UsageError("nothing to answer with", hint=f'lemming answer {request.id} "the result"')


def _binds_now(base: OrgPath, agent: str, call: Json, args: Json) -> Json | None:
    """Return what the files hold now that edited arguments name; None for what is no call of a tool here."""
    org, tool = Organisation.at(base), _tool_of(base, agent, call)
    if tool is None:
        return None
    return binds_of(load_agent(org, agent), Path(org.base), tool.tool_class, args, {}).files


def _tool_of(base: OrgPath, agent: str, call: Json) -> Tool | None:
    """Return the tool that a call is of; raise `NotTrusted` where only code tells that nobody agreed to."""
    settings, name = load_config(base).org, call["tool"]
    for_all = toolset_of(settings).get(name)  # no file of the organisation's has a tool of such a name
    return for_all or toolset_of(settings, Organisation.at(base)).of(agent).get(name)


def _require_reach(base: OrgPath, agent: str, call: Json, args: Json) -> None:
    """Raise `UsageError` for a path that was put into a call, and that its agent may not reach."""
    org, tool = Organisation.at(base), _tool_of(base, agent, call)
    if tool is None or tool.tool_class not in ("read", "write"):
        return
    access: Access = "write" if tool.tool_class == "write" else "read"
    for key in FILE_ARGUMENTS & args.keys():
        if args[key] != call["args"].get(key) and isinstance(args[key], str):
            try:
                resolve(load_agent(org, agent), Path(org.base), args[key], access, caller=call["tool"])
            except ToolError as error:
                raise UsageError(f"{key}: {error.message}", hint=error.hint) from error


def _require_amounts(call: Json, args: Json) -> None:
    """Raise `UsageError` where a limit is to be raised by what is no amount."""
    if call["tool"] == SPEND:
        for key in args.keys() - {"of"}:
            if not is_amount(args[key]):
                raise UsageError(f"{key} must be more than 0, got {args[key]!r}", hint=f"--edit {key}=5")


def _other_decision(request: RequestView, word: Word, text: str) -> Json:
    """Return the decision about something else that a person approves or not: what its schema lists."""
    if made_by(request.entry.payload):
        hint = f"`lemming cancel {request.id}` takes it off the list"
        raise UsageError("no call waits for approval there: it only shows one", hint=hint)
    field = properties_of(schema_for(request)).get("decision")
    listed = field.get("enum") if isinstance(field, dict) else None
    words = ("deny", "reject", "refuse") if word == "deny" else (word,)
    found = next((it for it in words if isinstance(listed, list) and it in listed), None)
    if found is None:
        raise UsageError(
            "it asks for an answer, not for approval", hint=f"lemming answer {request.id} TEXT, or --refuse"
        )
    names = properties_of(schema_for(request))
    reason = next((name for name in ("reason", "reasons", "text") if name in names), "text")
    return {"decision": found, **({reason: text} if text else {})}


def _require_undecided(request: RequestView) -> None:
    """Raise `UsageError` that says who was first: deciding twice changes nothing."""
    if request.is_open or not request.closed_by or not made_by(request.entry.payload):
        return require_open(request)
    said = request.closed_by.payload.get("decision", "deny")
    raise UsageError(
        f"it is decided: {request.closed_by.agent} said {said} in tick {request.end_tick}",
        hint=f"lemming requests {request.id}",
    )


def _edited(args: Json, edits: list[str]) -> Json:
    """Return the arguments of a call with others, each typed as `KEY=VALUE`.

    >>> _edited({"path": "a.txt", "lines": 3}, ["path=b.txt", "lines=4"])
    {'path': 'b.txt', 'lines': 4}
    """
    edited = {**args}
    for edit in edits:
        key, equals, typed = edit.partition("=")
        if not equals:
            raise UsageError(f'--edit "{edit}" has no value', hint="--edit KEY=VALUE")
        if key not in args:
            hint = nearest(key, [*args]) or f"arguments: {', '.join(args)}"
            raise UsageError(f'the call has no argument "{key}"', hint=hint)
        edited[key] = typed if isinstance(args[key], str) else _value(key, typed)
    return edited


def _value(key: str, typed: str) -> Any:
    try:
        return parse(typed)
    except JsonProblem as error:
        raise UsageError(f"{key}: no JSON: {error}", hint=f"--edit {key}=JSON") from error


def approve_ahead(
    base: OrgPath, agent: str, tool: str, args: Json, *, person: str | None = None
) -> messages.OutboxEntry:
    """Approve one call of an agent in advance, with exactly these arguments, and return the entry.

    Raises `UsageError` where it would not reach the agent.
    """
    now = requests_now(base)
    author = person_for(now, person)
    require_reach(now, author, agent)
    call = {"tool": tool, "args": args}
    payload = {"target": agent, "decision": "approve", "call": call}
    return write_payload(base, author, "response", payload, is_decision=True)
