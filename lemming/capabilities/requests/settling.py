"""What becomes of a request by the entries that answer it, hand it on, cancel it: docs/requests.md. Pure.

Who looks at all of them (`requests.all_requests`) and whose turn it is (`requests.known_requests`) go by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from lemming.capabilities.requests.deadlines import expiry, is_in_time, is_past, not_after_in
from lemming.capabilities.requests.payloads import enough_in, order_of_decision
from lemming.capabilities.requests.view import End, Hop, Place, RequestView, Share
from lemming.kernel.mail.references import named_in
from lemming.kernel.messages import EntryName, OutboxEntry
from lemming.kernel.org.resume import Agent
from lemming.kernel.plugins.capabilities import capability_here, made_by

A_PERSONS_PLACE = -1  # who has no turn in a tick wrote before its turns

LastTick = Callable[[OutboxEntry], int | None]


class RequestFacts(NamedTuple):
    """What else it goes by: who there is, who are persons and whose resumes are broken, and when it is."""

    agents: Mapping[str, Agent]
    people: frozenset[str]
    known: frozenset[str]
    tick: int
    at: str
    last_tick_of: LastTick

    def may_read(self, reader: str, author: str) -> bool:
        """Return whether an agent's resume lets it read an author's entries."""
        agent = self.agents.get(reader)
        return agent is not None and agent.may_read(author)


class RequestEvent(NamedTuple):
    """An entry that is about an earlier one, and what it does to it."""

    place: Place
    about: str
    does: str
    entry: OutboxEntry


def place_of(ranks: Mapping[str, int], people: frozenset[str], name: EntryName) -> Place:
    """Return where an entry stands in the order of all."""
    rank = A_PERSONS_PLACE if name.author in people else ranks.get(name.author, A_PERSONS_PLACE)
    return name.tick, rank, name.number, name.id


def opened_by(name: EntryName, entry: OutboxEntry, facts: RequestFacts) -> RequestView:
    """Return the request that an entry opens, as it was when it was asked."""
    targets = targets_in(entry, facts.known)
    return RequestView(
        name=name,
        entry=entry,
        shares=[Share(target, target, entry.tick) for target in targets],
        wanted=enough_in(entry.payload, len(targets)),
        deadline=facts.last_tick_of(entry),
        not_after=not_after_in(entry.payload),
    )


def targets_in(entry: OutboxEntry, known: Iterable[str]) -> list[str]:
    """Return the agents there are that an entry is addressed to, but its author, in the order it has them."""
    if not entry.targets:
        return []
    target = entry.payload["target"]
    listed = target if isinstance(target, list) else [target]
    names = dict.fromkeys(name.strip().lower() for name in listed if isinstance(name, str))
    there = known if isinstance(known, frozenset) else frozenset(known)
    return [name for name in names if name in there and name != entry.agent]


def events_of(place: Place, entry: OutboxEntry) -> list[RequestEvent]:
    """Return what an entry that stands there does to others, by the references that name them."""
    match entry.kind:
        case "response":
            key, does = "reply_to", "answers"
        case "request":
            key, does = "hands_on", "hands_on"
        case "status":
            key, does = "cancels", "cancels"
        case _:
            return []
    return [RequestEvent(place, about, does, entry) for about in named_in(entry.payload.get(key))]


def settle(
    request: RequestView, events: Iterable[RequestEvent], facts: RequestFacts, cut_off: Place | None
) -> Place | None:
    """Let a request go through what happened to it; return where it ended, None if it is open.

    `cut_off` is where the request ended that it was asked for.
    """
    expires = expiry(request.deadline)
    last = min((place for place in (expires, cut_off) if place), default=None)
    for event in _in_order(request, events):
        if last and event.place > last:
            continue
        if event.does == "answers" and not is_in_time(event.entry, None, request.not_after, facts.at):
            continue
        if _apply(request, event, facts):
            request.closed_by, request.end_tick = event.entry, event.entry.tick
            return event.place
    if is_past(None, request.not_after, facts.tick, facts.at) and (last is None or last[0] > facts.tick):
        last = expires = expiry(facts.tick - 1)
    if last is None or last[0] > facts.tick:
        return None
    request.end = "expired" if last == expires else "cancelled"
    request.end_tick = last[0]
    return last


def _in_order(request: RequestView, events: Iterable[RequestEvent]) -> Iterable[RequestEvent]:
    """Return the events of a request in their order; where persons decide, the first decision counts."""
    if not made_by(request.entry.payload):
        return events
    return sorted(events, key=lambda event: order_of_decision(event.entry))


def is_parent(parent: RequestView, child: RequestView, place: Callable[[EntryName], Place]) -> bool:
    """Return whether a request was asked for another: for an earlier one that its asker was to answer."""
    return place(parent.name) < place(child.name) and parent.was_held_by(child.asker)


def cut_off_by(
    parent: RequestView, events: Iterable[RequestEvent], ended: Place | None, asker: str
) -> Place | None:
    """Return where what an agent asked for a request is wanted no more: it has answered it, or it has ended.

    `events`: those of the request, which has been through them; `ended`: where it did.
    """
    answers = [share.answer for share in parent.shares if share.answer and share.answer.agent == asker]
    given = (it.place for it in events if any(it.entry is answer for answer in answers))
    return min((*given, *([ended] if ended else ())), default=None)


def _apply(request: RequestView, event: RequestEvent, facts: RequestFacts) -> bool:
    """Let one entry have its effect on an open request; return whether the request has ended by it."""
    entry = event.entry
    if event.does == "cancels":
        if _may_cancel(request, entry.agent, facts):
            request.end = "cancelled"
        return not request.is_open
    # Whoever was handed a second one of them owes one answer to both.
    shares = [share for share in request.open_shares if share.holder == entry.agent]
    by = made_by(request.entry.payload)
    if not shares or (by and not _decides(by, event)):
        return False
    for share in shares:
        if event.does == "hands_on":
            _hand_on(share, entry, facts)
        else:
            share.end, share.answer = _end_of(entry), entry
    if event.does == "hands_on":
        return False
    request.end = _end_of(entry) if by else _end_by_shares(request)
    return not request.is_open


def _decides(by: str, event: RequestEvent) -> bool:
    """Return whether an entry decides about what waits: nobody hands that on, and not every answer does.

    `by`: the capability whose request it is; where that is not here, nobody says so.
    """
    asked = capability_here(by) if event.does == "answers" else None
    return asked is not None and asked.decides(event.entry.payload)


def _may_cancel(request: RequestView, author: str, facts: RequestFacts) -> bool:
    if author == request.asker:
        return True
    if made_by(request.entry.payload):
        return author in request.holders
    return author in facts.people and any(facts.may_read(holder, author) for holder in request.holders)


def _hand_on(share: Share, entry: OutboxEntry, facts: RequestFacts) -> None:
    targets = targets_in(entry, facts.known)
    if len(targets) == 1:
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
