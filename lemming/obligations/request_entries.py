"""Write a person's entries about requests: one entry per action, into the person's outbox.

The acting person is chosen here, and the permissions between the asker and the target of a request are checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lemming.kernel.agents import suggest_agent, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.entry_kinds import MessageKind
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.json_schema.schema_violations import describe_violations
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.base.times import Expiry, expiry_payload
from lemming.kernel.files import fs
from lemming.kernel.files.stat_cache import path_exists
from lemming.kernel.inboxes.answer_payload import REQUEST_KEYS, needs_answer_key, nest_answer
from lemming.kernel.journal.journal_file import last_record
from lemming.kernel.journal.ledger import amend_state, read_state
from lemming.kernel.messages import ENTRY_LIMIT_BYTES, OutboxEntry, parse_identities
from lemming.kernel.obligations.request_payloads import parse_amount
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.plugins.capability_loader import require_fact
from lemming.kernel.tick.tick_counter import load_tick
from lemming.libraries.outbox_files import read_outbox_entries, write_person_entry
from lemming.obligations.answer_fields import get_answer_schema, get_properties, parse_answer
from lemming.obligations.decisions import is_approval_request
from lemming.obligations.org_requests import OrgRequests, find_request, load_requests
from lemming.obligations.request_view import RequestView

USUAL_PERSON = "human"


def choose_person(org_requests: OrgRequests, name: str | None, *, candidates: Iterable[str] | None = None) -> str:
    """Return the acting person: the named one, else `human`, else the only person.

    With `of`, choose only among these persons. Raises `UsageError` if there is no person or the choice is ambiguous.
    """
    if name is not None:
        require_person(org_requests, name)
        return name
    people = sorted(org_requests.people if candidates is None else org_requests.people.intersection(candidates))
    if USUAL_PERSON in people:
        return USUAL_PERSON
    if not people:
        hint = "create one with `lemming agents new human --model human`"
        raise UsageError("the organisation has no person", hint=hint)
    if len(people) > 1:
        raise UsageError("the organisation has several people", hint=f"choose one: --as {' or '.join(people)}")
    return people[0]


def require_person(org_requests: OrgRequests, name: str) -> None:
    """Raise `UsageError` for a name of no person."""
    if name in org_requests.people:
        return
    _require_known(org_requests, name)
    people = ", ".join(sorted(org_requests.people))
    hint = f"people here: {people or 'none; create one with the model key human'}"
    raise UsageError(f"{name} is not a person: a model answers for it", hint=hint)


def _require_known(org_requests: OrgRequests, name: str) -> None:
    if name not in org_requests.agent_names:
        raise UsageError(f'there is no agent "{name}"', hint=suggest_agent(name, sorted(org_requests.agent_names)))


def require_reachable(org_requests: OrgRequests, asker: str, target: str) -> None:
    """Raise `UsageError` unless a request can reach `target` and return; the hint gives a resume's missing line."""
    _require_known(org_requests, target)
    if target in paths.RESERVED_NAMES:
        hint = f"rename it: lemming agents rename {target} NEW"
        raise UsageError(paths.new_agent_name_error(target), hint=hint)
    if target == asker:
        raise UsageError(f"{asker} cannot ask itself", hint="name another agent")
    if target in org_requests.broken:
        raise org_requests.broken[target]
    for reader, author, action in ((target, asker, "be asked by"), (asker, target, "be answered by")):
        if not org_requests.may_read(reader, author):
            raise UsageError(
                f"{reader} cannot {action} {author}: {reader} may not read {author}",
                hint=suggest_permission(reader, author),
            )


def require_recipient(org_requests: OrgRequests, person: str, target: str) -> None:
    """Raise `UsageError` unless an agent reads a person's messages in its turns; the hint gives the missing line."""
    _require_known(org_requests, target)
    if target in org_requests.people:
        raise UsageError(f"{target} takes no turns: a person writes for it", hint=f"lemming send --to {target}")
    if target in org_requests.broken:
        raise org_requests.broken[target]
    if not org_requests.may_read(target, person):
        raise UsageError(f"{target} may not read {person}", hint=suggest_permission(target, person))


def suggest_permission(reader: str, author: str) -> str:
    """Return a hint to add the permission to read another agent's outbox."""
    return f'add "{author}" to permissions.read_outboxes in {paths.resume_file(reader)}'


def describe_assignees(request: RequestView) -> str:
    """Return the names of a request's assignees as text."""
    return " and ".join(request.assignees) or "nobody"


def get_conversation_assignee(org_requests: OrgRequests, asker: str, agent: str, conversation: str) -> str:
    """Return the agent for the next question of a conversation: the agent, or the target of the last handoff."""
    if conversation:
        requests = [request for request in org_requests.requests if request.conversation == conversation]
        for request in sorted(requests, key=lambda request: request.name, reverse=True):
            if request.asker == asker and (agent in request.targets or request.was_assignee(agent)):
                return request.handoffs[-1].to if request.handoffs else agent
    return agent


def mark_as_read(base: OrgPath, person: str, entries: Iterable[OutboxEntry]) -> None:
    """Mark entries as read in a person's ledger, because a person takes no turns."""
    state = read_state(base, person)
    unread = {name for name in parse_identities([entry.identity for entry in entries]) if not state.read.has_seen(name)}
    if unread:
        existing = {name.identity for name in parse_identities(state.read.also) if path_exists(f"{base}/{name.file}")}
        mark = replace(state.read, also=frozenset(existing.union(name.identity for name in unread)))
        # not flushed: after a power cut the item is shown once more, which is harmless
        amend_state(base, person, replace(state, read=mark), sync=False)


PAYLOAD_LIMIT_BYTES = ENTRY_LIMIT_BYTES - 4096  # room for the other keys of the entry


def write_request(
    base: OrgPath,
    org_requests: OrgRequests,
    target: str,
    text: str,
    *,
    person: str,
    conversation: str = "",
    deadline: Expiry | None = None,
    schema: dict[str, Any] | None = None,
    budget: float | str | None = None,
    until: Any = None,
    fields: Mapping[str, Any] | None = None,
) -> OutboxEntry:
    """Ask an agent as a person, and return the entry. Raise `UsageError` if the request would reach nobody.

    `until`: the goal, checks and a judge, as in docs/requests.md. `fields`: further payload keys, unknown to the engine.
    """
    require_reachable(org_requests, person, target)
    if reserved_keys := sorted(REQUEST_KEYS.intersection(fields or ())):
        raise UsageError(f'"{reserved_keys[0]}" is a reserved key of requests', hint="rename the field")
    if budget is not None and parse_amount(budget) is None:
        hint = 'write credits such as 50, or "9000 tokens"'
        raise UsageError(f'a budget must be credits or tokens, got "{budget}"', hint=hint)
    if until is not None:
        require_fact("goals.require_valid")(base, until, target)
    deadlines = expiry_payload([] if deadline is None else [deadline], timestamp(SystemClock().now()))
    options = {**deadlines, "schema": schema, "budget": budget, "until": until}
    # The sender waits for the answer.
    payload = {**(fields or {}), **({"text": text} if text else {}), "target": target, "conversation": conversation}
    return write_payload(base, person, "request", {**payload, **{k: v for k, v in options.items() if v is not None}})


def write_urgent_message(
    base: OrgPath, org_requests: OrgRequests, target: str, text: str, *, person: str
) -> OutboxEntry:
    """Tell an agent something as a person, during a running turn too, and return the entry.

    Raise `UsageError` if the target takes no turns or may not read the person.
    """
    require_recipient(org_requests, person, target)
    return write_payload(base, person, "message", {"text": text, "target": target, "urgent": True})


def write_answer(
    base: OrgPath,
    reference: str,
    *,
    person: str | None = None,
    text: str = "",
    fields: dict[str, Any] | None = None,
    refuse: bool = False,
) -> OutboxEntry:
    """Answer a request as the person to whom the request is assigned, and return the entry.

    Raises `UsageError` if the request does not exist or has ended, if no person here is an assignee, or if
    the answer violates the request's schema.
    """
    org_requests = load_requests(base)
    request = find_request(org_requests.requests, reference)
    author = choose_answerer(org_requests, request, person)
    payload = {**address_answer(org_requests, request), **({"text": text} if text else {})}
    schema = get_answer_schema(request)
    answer_fields = nest_answer(fields or {}, None if refuse else schema)
    payload = {**answer_fields, **payload} if needs_answer_key(schema) else {**payload, **answer_fields}
    if refuse:
        is_decision = is_approval_request(request.entry.payload)
        return write_payload(base, author, "response", {**payload, "status": "refused"}, is_decision=is_decision)
    if schema is None and not parse_answer(payload):
        raise UsageError("the answer is empty", hint=f'write lemming answer {request.id} "some text"')
    if schema is not None and (violations := describe_violations(schema, parse_answer(payload, schema))):
        raise UsageError("; ".join(violations), hint=describe_fields(request))
    return write_payload(base, author, "response", payload)


def address_answer(org_requests: OrgRequests, request: RequestView) -> dict[str, Any]:
    """Return the payload fields of an answer to a request: reference, target and conversation."""
    conversation = {"conversation": request.conversation} if request.conversation else {}
    return {"reply_to": org_requests.requests.get_reference(request), "target": request.asker, **conversation}


def choose_answerer(org_requests: OrgRequests, request: RequestView, person: str | None) -> str:
    """Return the person who may answer a request now. Raise `UsageError` if there is none."""
    require_open(request)
    if person is not None and person in org_requests.people and person not in request.assignees:
        raise UsageError(f"the request is not assigned to {person}", hint=f"act as {describe_assignees(request)}")
    if person is None and not org_requests.people.intersection(request.assignees):
        hint = f"wait for {describe_assignees(request)}, or end it with `lemming cancel {request.id}`"
        raise UsageError("the request is not assigned to a person", hint=hint)
    return choose_person(org_requests, person, candidates=request.assignees)


def require_open(request: RequestView) -> None:
    """Raise `UsageError` with the outcome of a closed request."""
    if not request.is_open:
        closing_agent = f" by {request.closed_by.agent}" if request.closed_by else ""
        raise UsageError(
            f"the request is closed: {request.end}{closing_agent} in tick {request.end_tick}",
            hint=f"see it with `lemming requests {request.id}`",
        )


def describe_fields(request: RequestView) -> str:
    """Return a command line to set the fields of an answer."""
    names = list(get_properties(get_answer_schema(request)))
    if not names:
        return f"lemming answer {request.id} TEXT"
    return f"lemming answer {request.id} {' '.join(f'--field {name}=...' for name in names)}"


def write_cancel(base: OrgPath, reference: str, *, person: str | None = None, text: str = "") -> OutboxEntry:
    """Cancel a request as a person, and return the entry. Raise `UsageError` if the cancellation has no effect."""
    org_requests = load_requests(base)
    request = find_request(org_requests.requests, reference)
    require_open(request)
    people, is_decision = org_requests.people, is_approval_request(request.entry.payload)
    if is_decision:  # a person who may not approve may not deny either
        eligible = people.intersection([*request.assignees, request.asker])
    else:
        may_read, assignees = org_requests.may_read, request.assignees
        readable = (person for person in people if any(may_read(assignee, person) for assignee in assignees))
        eligible = people.intersection([*readable, request.asker])
    author = (
        request.asker
        if person is None and request.asker in eligible
        else choose_person(org_requests, person, candidates=eligible)
    )
    if author not in eligible:
        hint = f"act as {request.asker}, who asked; {describe_assignees(request)} may not read {author}"
        raise UsageError(f"{author} cannot cancel the request", hint=hint)
    reference = org_requests.requests.get_reference(request)
    payload = {**({"text": text} if text else {}), "cancels": reference, "target": list(request.assignees)}
    return write_payload(base, author, "status", payload, is_decision=is_decision)


def write_payload(
    base: OrgPath, author: str, kind: MessageKind, payload: dict[str, Any], *, is_decision: bool = False
) -> OutboxEntry:
    """Write an entry as a person, and return the entry. Raise `UsageError` for a payload of excessive length."""
    size = len(dump_pretty(payload))
    if size > PAYLOAD_LIMIT_BYTES:
        raise UsageError(
            f"the payload must have at most {PAYLOAD_LIMIT_BYTES:,} bytes, got {size:,}",
            hint="put the content into a file in shared/ and send its name",
        )
    return write_person_entry(
        base,
        author,
        tick=load_tick(base),
        kind=kind,
        payload=payload,
        tags=[],
        created_at=timestamp(SystemClock().now()),
        is_decision=is_decision,
    )


TOO_LATE = "the entry cannot be withdrawn: a tick has started and may have read it"


def retract_entry(base: OrgPath, identity: str, *, person: str | None = None) -> OutboxEntry:
    """Remove a person's entry for the upcoming tick, and return the entry.

    Raises `UsageError` if the entry does not exist or belongs to another author, or if a tick has begun since.
    """
    org = Organisation.from_path(base)
    name = next(iter(parse_identities([identity])), None)
    people = survey_agents(org).find_people(load_config(org))
    if name is None or name.author not in people or person not in (None, name.author):
        raise UsageError(f'"{identity[:80]}" is not an entry of yours')
    entry = next((entry for entry in read_outbox_entries(org, name.author) if entry.identity == identity), None)
    if entry is None:
        raise UsageError("the entry does not exist any more")
    _require_unread(org, entry.tick)
    # looked at again after that: a tick may begin between the look and the removal
    fs.remove(Path(org.base), entry.file)
    try:
        _require_unread(org, entry.tick)
    except UsageError:  # a tick has begun meanwhile, and may have it on record
        fs.create(Path(org.base), entry.file, entry.content)
        raise
    return entry


def _require_unread(org: Organisation, tick: int) -> None:
    if load_tick(org) != tick or last_record(org, tick) is not None:
        raise UsageError(TOO_LATE)
