"""Calls that wait for a person: what stands in the ledgers, whatever the requests say. Looks only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lemming.capabilities.approvals.waiting import NAME, call_text
from lemming.capabilities.requests.now import RequestsNow
from lemming.capabilities.requests.view import RequestView
from lemming.kernel.base.errors import CorruptState
from lemming.kernel.base.unseen import notes_on
from lemming.kernel.files.documents import value_of
from lemming.kernel.journal.begun import Asked, Begun
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.mail.capability_notes import WaitingForPerson
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capabilities import made_by

Json = dict[str, Any]


def waiting_calls(org: Organisation, requests: Iterable[RequestView]) -> dict[str, Json]:
    """Return the calls that wait for approval, as they are made if it is given, by the request's identity.

    A request that shows a call nobody keeps is not among them: to approve it has no effect.
    """
    askers = {it.asker for it in requests if made_by(it.entry.payload) == NAME}
    return {identity: call for asker in sorted(askers) for identity, call in _of(org, asker).items()}


def waits_beside(org: Organisation, now: RequestsNow, identity: str) -> list[RequestView]:
    """Return what has to be answered or decided too before a call is made: its turn goes on with all of it.

    `identity`: of the request for its approval.
    """
    asker = now.requests.by_identity[identity].asker
    try:
        begun = read_state(org, asker).requests
    except CorruptState:  # its agent takes no turns then
        return []
    beside = {it.request for each in begun for it in each.open if _has(each, identity)} - {identity}
    known = (now.requests.by_identity.get(other) for other in sorted(beside))
    return [request for request in known if request is not None and request.is_open]


def _has(begun: Begun, identity: str) -> bool:
    return any(asked.request == identity and NAME in asked.held for asked in begun.open)


def _of(org: Organisation, agent: str) -> dict[str, Json]:
    try:
        state = read_state(org, agent)
    except CorruptState:
        return {}
    open_ = [asked for begun in state.requests for asked in begun.open]
    beside = [value_of(Asked, plain) for plain in state.kept.get(NAME, {}).get("asked", ())]
    open_ += [asked for asked in beside if not asked.end]
    return {asked.request: asked.held[NAME] for asked in open_ if NAME in asked.held}


def call_of(request: RequestView, calls: Mapping[str, Json]) -> Json | None:
    """Return the call that a request asks about, with the `diff` and `amounts` that its entry shows.

    Returns None for a request that asks about no call. `notes`: what a person should look at closely.
    """
    call = calls.get(request.identity)
    if call is None:
        return None
    shown = request.entry.payload.get("call")
    beside = shown if isinstance(shown, dict) else {}
    further: Json = {}
    if isinstance(beside.get("diff"), str):
        further["diff"] = beside["diff"]
    if _are_amounts(beside.get("amounts")):
        further["amounts"] = beside["amounts"]
    if notes := [*notes_on(call["args"])]:
        further["notes"] = notes
    return {**call, **further}


def _are_amounts(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("unit"), str):
        return False
    return all(type(value.get(key)) in (int, float) for key in ("spent", "limit", "call"))


def waiting_for_persons(org: Organisation, requests: Iterable[RequestView]) -> dict[str, WaitingForPerson]:
    """Return the calls that wait for persons, of these requests, by the request's identity."""
    found = [*requests]
    calls = waiting_calls(org, found)
    shown = {it.identity: call_of(it, calls) for it in found}
    return {
        identity: WaitingForPerson(call, call_text(call), f"approval of call {call['id']}")
        for identity, call in shown.items()
        if call is not None
    }
