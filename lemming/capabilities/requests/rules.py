"""Which entries open a request, hand it on, answer it and end it: docs/requests.md. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from lemming.capabilities.requests.closing import enough_in, is_in_time, last_tick, not_after_in
from lemming.capabilities.requests.view import End, Hop, Requests, RequestView, Share
from lemming.mail.references import name_in, named_in
from lemming.messages import EntryName, OutboxEntry
from lemming.org.resume import Agent
from lemming.plugins.capabilities import capability_here, made_by

FIRST_PLACE = -2  # before everybody's entries of a tick: when what was open through the tick before expires
A_PERSONS_PLACE = -1  # who has no turn in a tick wrote before its turns

LastTick = Callable[[OutboxEntry], int | None]
Place = tuple[int, int, int, str]
"""Where something stands in the order of all entries: tick, the author's place in it, number, id."""


def may_matter(raw: bytes) -> bool:
    """Return whether an entry of these bytes may open a request, move it or end it; most do not."""
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
) -> Requests:
    """Return the requests that these entries tell of, as they stand before `tick` runs, at a moment.

    `order` is that of the agents in a tick; `people` are the agents that persons speak for, `broken` those
    whose resume is. `last_tick_of`: the last tick whose answer to a request counts.
    """
    facts = _Facts(agents, frozenset(people), frozenset((*agents, *broken)), tick, at, last_tick_of)
    ranks = {name: place for place, name in enumerate(order)}
    place_of = partial(_place, ranks, facts.people)
    ordered = sorted((it for it in entries.items() if it[0].tick <= tick), key=lambda it: place_of(it[0]))
    opened = _opened(ordered, facts)
    named = _names_of(opened)
    events: dict[str, list[_Event]] = {}
    for name, entry in ordered:
        for event in _events_of(name, entry, place_of):
            if meant := _meant(event.about, named, opened):
                events.setdefault(meant, []).append(event)
    ended_at: dict[str, Place] = {}
    for identity, request in opened.items():
        parent = _parent_of(request, named, opened, place_of)
        if parent is not None:
            request.parent = parent.identity
            parent.children.append(identity)
        cut_off = ended_at.get(parent.identity) if parent else None
        if place := _settle(request, events.get(identity, ()), facts, cut_off):
            ended_at[identity] = place
    return Requests(opened, tick)


class _Facts(NamedTuple):
    agents: Mapping[str, Agent]
    people: frozenset[str]
    known: frozenset[str]
    tick: int
    at: str
    last_tick_of: LastTick

    def may_read(self, reader: str, author: str) -> bool:
        agent = self.agents.get(reader)
        return agent is not None and agent.may_read(author)


class _Event(NamedTuple):
    """An entry that is about an earlier one, and what it does to it."""

    place: Place
    about: str
    does: str
    entry: OutboxEntry


def _place(ranks: Mapping[str, int], people: frozenset[str], name: EntryName) -> Place:
    rank = A_PERSONS_PLACE if name.author in people else ranks.get(name.author, A_PERSONS_PLACE)
    return name.tick, rank, name.number, name.id


def _opened(ordered: Iterable[tuple[EntryName, OutboxEntry]], facts: _Facts) -> dict[str, RequestView]:
    """Return the requests that entries open, by identity, in the order of the entries."""
    opened = {}
    for name, entry in ordered:
        if entry.kind != "request" or "hands_on" in entry.payload:
            continue
        if targets := targets_in(entry, facts.known):
            opened[name.identity] = RequestView(
                name=name,
                entry=entry,
                shares=[Share(target, target, entry.tick) for target in targets],
                wanted=enough_in(entry.payload, len(targets)),
                deadline=facts.last_tick_of(entry),
                not_after=not_after_in(entry.payload),
            )
    return opened


def targets_in(entry: OutboxEntry, known: Iterable[str]) -> list[str]:
    """Return the agents there are that an entry is addressed to, but its author, in the order it has them."""
    if not entry.targets:
        return []
    target = entry.payload["target"]
    listed = target if isinstance(target, list) else [target]
    names = dict.fromkeys(name.strip().lower() for name in listed if isinstance(name, str))
    there = known if isinstance(known, frozenset) else frozenset(known)
    return [name for name in names if name in there and name != entry.agent]


def _events_of(name: EntryName, entry: OutboxEntry, place_of: Callable[[EntryName], Place]) -> list[_Event]:
    match entry.kind:
        case "response":
            key, does = "reply_to", "answers"
        case "request":
            key, does = "hands_on", "hands_on"
        case "status":
            key, does = "cancels", "cancels"
        case _:
            return []
    place = place_of(name)
    return [_Event(place, about, does, entry) for about in named_in(entry.payload.get(key))]


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
    return found[0] if len(found) == 1 else None


def _parent_of(
    request: RequestView,
    named: Mapping[str, list[str]],
    opened: Mapping[str, RequestView],
    place_of: Callable[[EntryName], Place],
) -> RequestView | None:
    """Return the request that this one was asked for: an earlier one that its asker was to answer."""
    identity = _meant(name_in(request.entry.payload.get("parent")), named, opened)
    parent = opened[identity] if identity else None
    if parent is None or place_of(parent.name) >= place_of(request.name):
        return None
    return parent if parent.was_held_by(request.asker) else None


def _settle(
    request: RequestView, events: Iterable[_Event], facts: _Facts, cut_off: Place | None
) -> Place | None:
    """Let a request go through what happened to it; return where it ended, None if it is open.

    `cut_off` is where the request ended that it was asked for.
    """
    expires = None if request.deadline is None else (request.deadline + 1, FIRST_PLACE, 0, "")
    last = min((place for place in (expires, cut_off) if place), default=None)
    for event in events:
        if last and event.place > last:
            break
        if event.does == "answers" and not is_in_time(event.entry, None, request.not_after, facts.at):
            continue
        if _apply(request, event, facts):
            request.closed_by, request.end_tick = event.entry, event.entry.tick
            return event.place
    if request.not_after and facts.at > request.not_after and (last is None or last[0] > facts.tick):
        last = expires = (facts.tick, FIRST_PLACE, 0, "")
    if last is None or last[0] > facts.tick:
        return None
    request.end = "expired" if last == expires else "cancelled"
    request.end_tick = last[0]
    return last


def _apply(request: RequestView, event: _Event, facts: _Facts) -> bool:
    """Let one entry have its effect on an open request; return whether the request has ended by it."""
    entry = event.entry
    if event.does == "cancels":
        if _may_cancel(request, entry.agent, facts):
            request.end = "cancelled"
        return not request.is_open
    share = next((share for share in request.open_shares if share.holder == entry.agent), None)
    by = made_by(request.entry.payload)
    if share is None or (by and not _decides(by, event)):
        return False
    if event.does == "hands_on":
        _hand_on(request, share, entry, facts)
        return False
    share.end, share.answer = _end_of(entry), entry
    request.end = share.end if by else _end_by_shares(request)
    return not request.is_open


def _decides(by: str, event: _Event) -> bool:
    """Return whether an entry decides about what waits: nobody hands that on, and not every answer does.

    `by`: the capability whose request it is; where that is not here, nobody says so.
    """
    asked = capability_here(by) if event.does == "answers" else None
    return asked is not None and asked.decides(event.entry.payload)


def _may_cancel(request: RequestView, author: str, facts: _Facts) -> bool:
    if author == request.asker:
        return True
    if made_by(request.entry.payload):
        return author in request.holders
    return author in facts.people and any(facts.may_read(holder, author) for holder in request.holders)


def _hand_on(request: RequestView, share: Share, entry: OutboxEntry, facts: _Facts) -> None:
    targets = targets_in(entry, facts.known)
    if len(targets) == 1 and targets[0] not in request.holders:
        share.hops.append(Hop(entry.tick, share.holder, targets[0], entry))
        share.holder, share.since = targets[0], entry.tick


def _end_of(response: OutboxEntry) -> End:
    match response.payload.get("status"):
        case "failed":
            return "failed"
        case "refused":
            return "refused"
    return "answered"


def _end_by_shares(request: RequestView) -> End | None:
    """Return how a request ends by what its targets said: None while enough answers may still come."""
    ends = [share.end for share in request.shares]
    if ends.count("answered") >= request.wanted:
        return "answered"
    return None if None in ends else "failed" if "failed" in ends else "refused"
