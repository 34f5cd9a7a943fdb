"""What a person writes about requests: one entry each, into their own outbox."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lemming.capabilities.requests.budgets import amount_of
from lemming.capabilities.requests.fields import properties_of, schema_for
from lemming.capabilities.requests.now import RequestsNow, find_request, requests_now
from lemming.capabilities.requests.people import holders_of, person_for, require_reach
from lemming.capabilities.requests.view import RequestView
from lemming.kernel import messages
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.json_schema.violations import misfits
from lemming.kernel.base.jsontext import pretty
from lemming.kernel.base.kinds import MessageKind
from lemming.kernel.base.times.spoken import Expires, until_in
from lemming.kernel.files import fs
from lemming.kernel.journal.file import last_record
from lemming.kernel.mail.answers import KEYS_OF_REQUESTS, answer_in, is_apart, with_answer_apart
from lemming.kernel.messages import OutboxEntry, names_of, read_outbox_entries
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.plugins.capabilities import made_by
from lemming.kernel.tick.counter import load_tick
from lemming.kernel.tick.firing_plan import people_in

PAYLOAD_LIMIT_BYTES = messages.ENTRY_LIMIT_BYTES - 4096  # room for the other keys of the entry


def write_request(
    base: OrgPath,
    now: RequestsNow,
    target: str,
    text: str,
    *,
    person: str,
    conversation: str = "",
    deadline: Expires | None = None,
    schema: dict[str, Any] | None = None,
    budget: float | str | None = None,
    fields: Mapping[str, Any] | None = None,
) -> OutboxEntry:
    """Ask an agent something as a person, and return the entry; raise `UsageError` if it reached nobody.

    `fields`: further keys of the payload, which are none of the engine's.
    """
    require_reach(now, person, target)
    if words := sorted(KEYS_OF_REQUESTS.intersection(fields or ())):
        raise UsageError(f'"{words[0]}" is a word of requests', hint="call the field something else")
    if budget is not None and amount_of(budget) is None:
        raise UsageError(f'"{budget}" is no budget', hint='credits, such as 50, or "9000 tokens"')
    until = until_in([] if deadline is None else [deadline], timestamp(SystemClock().now()))
    further = {**until, "schema": schema, "budget": budget}
    payload = {
        **(fields or {}),
        **({"text": text} if text else {}),
        "target": target,
        "conversation": conversation,
    }  # who gives one waits for the answer
    return write_payload(
        base, person, "request", {**payload, **{k: v for k, v in further.items() if v is not None}}
    )


def write_answer(
    base: OrgPath,
    reference: str,
    *,
    person: str | None = None,
    text: str = "",
    fields: dict[str, Any] | None = None,
    refuse: bool = False,
) -> OutboxEntry:
    """Answer a request as the person who holds it, and return the entry.

    Raises `UsageError` when there is no such request, it has ended, nobody here holds it as a person, or the
    answer is not what its schema asks for.
    """
    now = requests_now(base)
    request = find_request(now.requests, reference)
    author = answerer(now, request, person)
    payload = {
        "reply_to": now.requests.reference(request),
        "target": request.asker,
        **({"conversation": request.conversation} if request.conversation else {}),
        **({"text": text} if text else {}),
    }
    given = with_answer_apart(fields or {}, None if refuse else schema_for(request))
    payload = {**given, **payload} if is_apart(schema_for(request)) else {**payload, **given}
    if refuse:
        is_decision = bool(made_by(request.entry.payload))
        refused = {**payload, "status": "refused"}
        return write_payload(base, author, "response", refused, is_decision=is_decision)
    require_fit(request, payload)
    return write_payload(base, author, "response", payload)


def answerer(now: RequestsNow, request: RequestView, given: str | None) -> str:
    """Return the person who may answer a request now; raise `UsageError` when there is none."""
    require_open(request)
    if given is not None and given in now.people and given not in request.holders:
        raise UsageError(f"{given} does not hold it", hint=f"{holders_of(request)} does")
    if given is None and not now.people.intersection(request.holders):
        hint = f"{holders_of(request)} is to answer it; `lemming cancel {request.id}` ends it"
        raise UsageError("it does not wait for a person", hint=hint)
    return person_for(now, given, of=request.holders)


def require_open(request: RequestView) -> None:
    """Raise `UsageError` that says how a request has ended."""
    if not request.is_open:
        by = f" by {request.closed_by.agent}" if request.closed_by else ""
        raise UsageError(
            f"it is over: {request.end}{by} in tick {request.end_tick}", hint=f"lemming requests {request.id}"
        )


def require_fit(request: RequestView, payload: dict[str, Any]) -> None:
    """Raise `UsageError` for an answer that the request's schema does not allow."""
    schema = schema_for(request)
    if schema is None:
        if not answer_in(payload):
            raise UsageError("nothing to answer with", hint=f'lemming answer {request.id} "some text"')
        return
    if wrong := misfits(schema, answer_in(payload, schema)):
        raise UsageError("; ".join(wrong), hint=fields_wanted(request))


def fields_wanted(request: RequestView) -> str:
    """Return how the fields of an answer are given."""
    names = list(properties_of(schema_for(request)))
    if not names:
        return f"lemming answer {request.id} TEXT"
    return f"lemming answer {request.id} {' '.join(f'--field {name}=...' for name in names)}"


def write_cancel(base: OrgPath, reference: str, *, person: str | None = None, text: str = "") -> OutboxEntry:
    """Cancel a request as a person, and return the entry. Raises `UsageError` where that has no effect."""
    now = requests_now(base)
    request = find_request(now.requests, reference)
    require_open(request)
    readable = {it for it in now.people for holder in request.holders if now.may_read(holder, it)}
    if made_by(request.entry.payload):  # who may not approve may not say no either
        readable = {*now.people.intersection(request.holders)}
    able = readable | now.people.intersection([request.asker])
    author = request.asker if person is None and request.asker in able else person_for(now, person, of=able)
    if author not in able:
        hint = f"{request.asker} asked, and {holders_of(request)} may not read {author}"
        raise UsageError(f"{author} cannot cancel it", hint=hint)
    payload: dict[str, Any] = {
        "cancels": now.requests.reference(request),
        "target": list(request.holders),
    }
    is_decision = bool(made_by(request.entry.payload))
    said = {**({"text": text} if text else {}), **payload}
    return write_payload(base, author, "status", said, is_decision=is_decision)


def write_payload(
    base: OrgPath, author: str, kind: MessageKind, payload: dict[str, Any], *, is_decision: bool = False
) -> OutboxEntry:
    """Write an entry as a person, and return it; raise `UsageError` for one that is too long."""
    size = len(pretty(payload))
    if size > PAYLOAD_LIMIT_BYTES:
        raise UsageError(
            f"{size:,} bytes are too many for one entry, which holds {PAYLOAD_LIMIT_BYTES:,}",
            hint="put it into a file below shared/ and send its name",
        )
    return messages.send(
        base,
        author,
        tick=load_tick(base),
        kind=kind,
        payload=payload,
        tags=[],
        created_at=timestamp(SystemClock().now()),
        is_decision=is_decision,
    )


TOO_LATE = "it is too late to take that back: a tick has begun, and what you wrote may have been read"


def take_back(base: OrgPath, identity: str, *, person: str | None = None) -> OutboxEntry:
    """Remove an entry that a person wrote for the tick that is to come, and return what it was.

    Raises `UsageError` where it is not there, is somebody else's, or a tick has begun since.
    """
    org = Organisation.at(base)
    name = next(iter(names_of([identity])), None)
    people = people_in(survey_agents(org), load_config(org))
    if name is None or name.author not in people or person not in (None, name.author):
        raise UsageError(f'"{identity[:80]}" is nothing that you wrote')
    entry = next((it for it in read_outbox_entries(org, name.author) if it.identity == identity), None)
    if entry is None:
        raise UsageError("it is not there any more")
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
