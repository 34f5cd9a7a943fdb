"""Outcomes of requests for approval, by the first decision of a person who was asked. Pure.

Rules: docs/gates.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from lemming.kernel.inboxes.request_policy import EntryLister, RequestOutcomes
from lemming.kernel.journal.open_requests import OpenRequest, SubRequest
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.obligations.decisions import parse_decision
from lemming.kernel.obligations.pending_approvals import NAME
from lemming.kernel.obligations.request_deadlines import is_expired, is_in_time
from lemming.kernel.obligations.request_payloads import decision_sort_key, is_cancellation, references_entry


def find_approval_outcomes(
    open_request: OpenRequest,
    tick: int,
    at: str,
    read: Callable[[str], OutboxEntry | None],
    read_entries: EntryLister,
    is_authorized: Callable[[str], bool],
) -> RequestOutcomes:
    """Return the outcomes of an open request's approvals, without the ones that still wait.

    `is_authorized`: returns True for a current person whose outbox the agent reads, and who reads the
    agent's.
    """
    outcomes: RequestOutcomes = {}
    for identity in dict.fromkeys(
        sub_request.request for sub_request in open_request.open_sub_requests if NAME in sub_request.held
    ):
        sub_requests = [
            sub_request for sub_request in open_request.open_sub_requests if sub_request.request == identity
        ]
        request = read(identity)
        authorized = [sub_request for sub_request in sub_requests if is_authorized(sub_request.to)]
        if request is None or not authorized:
            outcomes |= {sub_request.key: ("failed", "") for sub_request in sub_requests}
        # The earliest decision counts: a later "no" takes nothing back, since the call may have been made.
        elif first := min(_iter_decisions(request, authorized, at, read_entries), key=_order, default=None):
            entry, to, end = first
            outcomes |= {sub_request.key: ("cancelled", "") for sub_request in sub_requests}
            outcomes |= {(identity, to): (end, entry.identity)} if to else {}
        elif is_expired(sub_requests[0].until, sub_requests[0].not_after, tick, at):
            outcomes |= {sub_request.key: ("expired", "") for sub_request in sub_requests}
    return outcomes


def _iter_decisions(
    request: OutboxEntry, sub_requests: Iterable[SubRequest], at: str, read_entries: EntryLister
) -> Iterator[tuple[OutboxEntry, str, str]]:
    """Yield the decisions of the asked persons: entry, author, and outcome of the request.

    The asker's own cancellation has no author.
    """
    for entry in read_entries(request.agent, request.tick):
        if is_cancellation(entry, request):
            yield entry, "", "cancelled"
    for sub_request in sub_requests:
        for entry in read_entries(sub_request.to, request.tick):
            if not is_in_time(entry, sub_request.until, sub_request.not_after, at):
                continue
            is_answer = entry.kind == "response" and references_entry(entry.payload.get("reply_to"), request)
            if is_answer and parse_decision(entry.payload):
                yield entry, sub_request.to, "answered"
            elif is_cancellation(entry, request):
                yield entry, sub_request.to, "refused"


def _order(decision: tuple[OutboxEntry, str, str]) -> Any:
    return decision_sort_key(decision[0])
