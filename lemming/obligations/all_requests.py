"""Build all requests from a set of entries, as one reader sees them.

`lemming.obligations.request_outcome` applies the events. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from lemming.kernel.messages import EntryName, OutboxEntry
from lemming.kernel.obligations.request_deadlines import Position, get_last_tick
from lemming.kernel.obligations.request_payloads import parse_reference, parse_references
from lemming.kernel.org.resume import Agent
from lemming.obligations.request_outcome import (
    LastTick,
    RequestEvent,
    RequestEventContext,
    apply_events,
    find_cutoff,
    get_events,
    get_position,
    is_parent_request,
    request_from_entry,
)
from lemming.obligations.request_view import AllRequests, RequestView


def may_concern_requests(raw: bytes) -> bool:
    """Return True if an entry with these bytes may open, affect or end a request. Most entries do not."""
    # "\u00": JSON may spell any word with escapes
    return b'"request"' in raw or b'"response"' in raw or b'"cancels"' in raw or b"\\u00" in raw


def concerns_requests(entry: OutboxEntry) -> bool:
    """Return True if an entry, taken alone, opens, affects or ends a request."""
    match entry.kind:
        case "request":
            return bool(entry.targets)
        case "response":
            return bool(parse_references(entry.payload.get("reply_to")))
        case "status":
            return bool(parse_references(entry.payload.get("cancels")))
    return False


def build_requests(
    entries: Mapping[EntryName, OutboxEntry],
    *,
    agents: Mapping[str, Agent],
    people: Iterable[str],
    order: Iterable[str],
    tick: int,
    broken: Iterable[str] = (),
    at: str = "",
    last_tick_of: LastTick = get_last_tick,
) -> AllRequests:
    """Return the requests in these entries, as they are before tick `tick` runs at time `at`.

    `order` is the order of the agents in a tick. `people` are the agents operated by persons; `broken` are the agents
    with a broken resume. `last_tick_of` gives the last tick in which an answer to a request counts.
    """
    facts = RequestEventContext(agents, frozenset(people), frozenset((*agents, *broken)), tick, at, last_tick_of)
    ranks = {name: to_position for to_position, name in enumerate(order)}
    to_position = partial(get_position, ranks, facts.people)
    ordered = sorted((item for item in entries.items() if item[0].tick <= tick), key=lambda item: to_position(item[0]))
    requests = {
        name.identity: request
        for name, entry in ordered
        if entry.kind == "request" and "hands_on" not in entry.payload
        if (
            request := request_from_entry(name, entry, facts)
        ).assignments  # without a recipient besides its author it is no request
    }
    identities_by_id = _index_by_id(requests)
    events: dict[str, list[RequestEvent]] = {}
    for name, entry in ordered:
        for event in get_events(to_position(name), entry):
            if match := _resolve_reference(event.reference, identities_by_id, requests):
                events.setdefault(match, []).append(event)
    ended_at: dict[str, Position] = {}
    # in order: a parent is settled before its sub-requests
    for identity, request in requests.items():
        parent = _find_parent(request, identities_by_id, requests, to_position)
        if parent is not None:
            request.parent = parent.identity
            parent.children.append(identity)
        cutoff = None
        if parent is not None:
            parent_history = events.get(parent.identity, ()), ended_at.get(parent.identity)
            cutoff = find_cutoff(parent, *parent_history, request.asker)
        if end_position := apply_events(request, events.get(identity, ()), facts, cutoff):
            ended_at[identity] = end_position
    return AllRequests(requests, tick)


def _index_by_id(requests: Mapping[str, RequestView]) -> dict[str, list[str]]:
    """Index the identities of requests by their ids."""
    identities_by_id: dict[str, list[str]] = {}
    for identity, request in requests.items():
        identities_by_id.setdefault(request.id, []).append(identity)
    return identities_by_id


def _resolve_reference(
    reference: str, identities_by_id: Mapping[str, list[str]], requests: Mapping[str, RequestView]
) -> str | None:
    """Return the identity of the request named in a payload, or None for no match or several matches."""
    if "/" in reference:
        return reference if reference in requests else None
    matches = identities_by_id.get(reference, ())
    return matches[0] if len(matches) == 1 else None  # an id that a person gave may come twice


def _find_parent(
    request: RequestView,
    identities_by_id: Mapping[str, list[str]],
    requests: Mapping[str, RequestView],
    to_position: Callable[[EntryName], Position],
) -> RequestView | None:
    """Return the parent of a request: an earlier request assigned to the asker."""
    identity = _resolve_reference(parse_reference(request.entry.payload.get("parent")), identities_by_id, requests)
    parent = requests[identity] if identity else None
    return parent if parent is not None and is_parent_request(parent, request, to_position) else None
