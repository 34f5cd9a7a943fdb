"""Pending calls for persons, read from ledgers regardless of the requests' texts. Read-only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lemming.kernel.base.errors import CorruptState
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.journal.open_requests import SPEND, iter_person_requests
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capability_table import DECISION_RULES
from lemming.libraries.invisible_text import find_suspicious_text
from lemming.obligations.decisions import is_approval_request
from lemming.obligations.org_requests import OrgRequests
from lemming.obligations.request_view import RequestView

Json = dict[str, Any]


def find_pending_calls(org: Organisation, requests: Iterable[RequestView]) -> dict[str, Json]:
    """Return the pending calls in final form, by the request's identity.

    A request about a call missing in the ledgers is omitted: the approval has no effect.
    """
    askers = {request.asker for request in requests if is_approval_request(request.entry.payload)}
    calls: dict[str, Json] = {}
    for asker in sorted(askers):
        try:
            state = read_state(org, asker)
        except CorruptState:
            continue
        sub_requests = [sub_request for request in state.requests for sub_request in request.open_sub_requests]
        sub_requests += [sub_request for sub_request in iter_person_requests(state.kept) if not sub_request.end]
        pairs = ((sub_request.request, sub_request.held) for sub_request in sub_requests)
        calls |= {request: state[DECISION_RULES] for request, state in pairs if DECISION_RULES in state}
    return calls


def find_blocking_requests(org: Organisation, org_requests: OrgRequests, identity: str) -> list[RequestView]:
    """Return the other requests to end before a call: the turn resumes with all results.

    `identity`: identity of the request for the call's approval.
    """
    asker = org_requests.requests.by_identity[identity].asker
    try:
        open_requests = read_state(org, asker).requests
    except CorruptState:  # its agent takes no turns
        return []
    identities = {
        sub_request.request
        for open_request in open_requests
        for sub_request in open_request.open_sub_requests
        if any(other.request == identity and DECISION_RULES in other.held for other in open_request.open_sub_requests)
    } - {identity}
    requests = (org_requests.requests.by_identity.get(other) for other in sorted(identities))
    return [request for request in requests if request is not None and request.is_open]


def find_pending_call(request: RequestView, calls: Mapping[str, Json]) -> Json | None:
    """Return the call of a request, with the `diff` and `amounts` of the request's entry.

    Returns None for a request without a call. `notes`: remarks on suspicious content.
    """
    call = calls.get(request.identity)
    if call is None:
        return None
    shown_call = request.entry.payload.get("call")
    shown_details = shown_call if isinstance(shown_call, dict) else {}
    # Only details come from the entry. The call comes from the ledger, because anyone may have edited the entry.
    details: Json = {}
    if isinstance(shown_details.get("diff"), str):
        details["diff"] = shown_details["diff"]
    amounts = shown_details.get("amounts")
    if (
        isinstance(amounts, dict)
        and isinstance(amounts.get("unit"), str)
        and all(type(amounts.get(key)) in (int, float) for key in ("spent", "limit", "call"))
    ):
        details["amounts"] = amounts
    if notes := [*find_suspicious_text(call["args"])]:
        details["notes"] = notes
    return {**call, **details}


def find_pending_approvals(org: Organisation, requests: Iterable[RequestView]) -> dict[str, Json]:
    """Return the pending calls among these requests, with details, by the request's identity."""
    request_list = [request for request in requests if is_approval_request(request.entry.payload)]
    calls = find_pending_calls(org, request_list)
    detailed = ((request.identity, find_pending_call(request, calls)) for request in request_list)
    return {identity: call for identity, call in detailed if call is not None}


def find_limit_raises(states: Mapping[str, Json], line: str) -> dict[str, Json]:
    """Return approved raises of a line's limit by request. `states`: of capabilities in a ledger, or snapshots."""
    pairs = ((sub_request, sub_request.held[DECISION_RULES]) for sub_request in iter_person_requests(states))
    return {
        sub_request.request: call["args"]
        for sub_request, call in pairs
        if (call["tool"], call["gate"], sub_request.end) == (SPEND, line, "approved")
    }
