"""Calls that wait for a person's leave: what stands in the ledgers, whatever the requests say. Looks only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lemming.errors import CorruptState
from lemming.inspect.requests import RequestsNow
from lemming.journal.ledger import read_state
from lemming.leave import asks_leave
from lemming.mail.requests import RequestView
from lemming.organisation import Organisation

Json = dict[str, Any]


def waiting_calls(org: Organisation, now: RequestsNow) -> dict[str, Json]:
    """Return the calls that wait for leave, as they are made if it is given, by the request's identity.

    A request that shows a call nobody keeps is not among them: leave for it has no effect.
    """
    askers = {it.asker for it in now.requests.open if asks_leave(it.entry.payload)}
    return {identity: call for asker in sorted(askers) for identity, call in _of(org, asker).items()}


def _of(org: Organisation, agent: str) -> dict[str, Json]:
    try:
        state = read_state(org, agent)
    except CorruptState:
        return {}
    open_ = [asked for begun in state.requests for asked in begun.open]
    open_ += [asked for asked in state.asked_leave if not asked.end]
    return {asked.request: asked.leave for asked in open_ if asked.leave is not None}


def call_of(request: RequestView, calls: Mapping[str, Json]) -> Json | None:
    """Return the call that a request asks leave for, with the diff that it shows; None when it asks none."""
    call = calls.get(request.identity)
    shown = request.entry.payload.get("call")
    diff = shown.get("diff") if isinstance(shown, dict) else None
    return {**call, **({"diff": diff} if isinstance(diff, str) else {})} if call else None
