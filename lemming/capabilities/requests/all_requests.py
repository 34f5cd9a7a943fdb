"""All requests that entries tell of, as who looks sees them: each by `requests.settling`. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from lemming.capabilities.requests.deadlines import last_tick
from lemming.capabilities.requests.settling import (
    LastTick,
    RequestEvent,
    RequestFacts,
    cut_off_by,
    events_of,
    is_parent,
    opened_by,
    place_of,
    settle,
)
from lemming.capabilities.requests.view import AllRequests, Place, RequestView
from lemming.kernel.mail.references import name_in, named_in
from lemming.kernel.messages import EntryName, OutboxEntry
from lemming.kernel.org.resume import Agent


def may_matter(raw: bytes) -> bool:
    """Return whether an entry of these bytes may open a request, move it or end it; most do not."""
    # "\u00": JSON may spell any word with escapes
    return b'"request"' in raw or b'"response"' in raw or b'"cancels"' in raw or b"\\u00" in raw


def concerns_requests(entry: OutboxEntry) -> bool:
    """Return whether an entry opens a request, moves one or ends one, as far as it alone tells."""
    match entry.kind:
        case "request":
            return bool(entry.targets)
        case "response":
            return bool(named_in(entry.payload.get("reply_to")))
        case "status":
            return bool(named_in(entry.payload.get("cancels")))
    return False


def requests_of(
    entries: Mapping[EntryName, OutboxEntry],
    *,
    agents: Mapping[str, Agent],
    people: Iterable[str],
    order: Iterable[str],
    tick: int,
    broken: Iterable[str] = (),
    at: str = "",
    last_tick_of: LastTick = last_tick,
) -> AllRequests:
    """Return the requests that these entries tell of, as they stand before `tick` runs, at a moment.

    `order` is that of the agents in a tick; `people` are the agents that persons speak for, `broken` those
    whose resume is. `last_tick_of`: the last tick whose answer to a request counts.
    """
    facts = RequestFacts(agents, frozenset(people), frozenset((*agents, *broken)), tick, at, last_tick_of)
    ranks = {name: place for place, name in enumerate(order)}
    place = partial(place_of, ranks, facts.people)
    ordered = sorted((it for it in entries.items() if it[0].tick <= tick), key=lambda it: place(it[0]))
    opened = {
        name.identity: request
        for name, entry in ordered
        if entry.kind == "request" and "hands_on" not in entry.payload
        if (request := opened_by(name, entry, facts)).shares  # asked of nobody but its author it is none
    }
    named = _names_of(opened)
    events: dict[str, list[RequestEvent]] = {}
    for name, entry in ordered:
        for event in events_of(place(name), entry):
            if meant := _meant(event.about, named, opened):
                events.setdefault(meant, []).append(event)
    ended_at: dict[str, Place] = {}
    # in their order: a parent is settled before what was asked for it
    for identity, request in opened.items():
        parent = _parent_of(request, named, opened, place)
        if parent is not None:
            request.parent = parent.identity
            parent.children.append(identity)
        cut_off = None
        if parent is not None:
            before = events.get(parent.identity, ()), ended_at.get(parent.identity)
            cut_off = cut_off_by(parent, *before, request.asker)
        if ends := settle(request, events.get(identity, ()), facts, cut_off):
            ended_at[identity] = ends
    return AllRequests(opened, tick)


def _names_of(opened: Mapping[str, RequestView]) -> dict[str, list[str]]:
    named: dict[str, list[str]] = {}
    for identity, request in opened.items():
        named.setdefault(request.id, []).append(identity)
    return named


def _meant(reference: str, named: Mapping[str, list[str]], opened: Mapping[str, RequestView]) -> str | None:
    """Return the identity of the request that a payload names; None for none, and for one of several."""
    if "/" in reference:
        return reference if reference in opened else None
    found = named.get(reference, ())
    return found[0] if len(found) == 1 else None  # an id that a person gave may come twice


def _parent_of(
    request: RequestView,
    named: Mapping[str, list[str]],
    opened: Mapping[str, RequestView],
    place: Callable[[EntryName], Place],
) -> RequestView | None:
    """Return the request that this one was asked for: an earlier one that its asker was to answer."""
    identity = _meant(name_in(request.entry.payload.get("parent")), named, opened)
    parent = opened[identity] if identity else None
    return parent if parent is not None and is_parent(parent, request, place) else None
