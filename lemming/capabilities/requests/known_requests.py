"""Requests as the agent of a turn may know them: each by the entries that concern it, once it is asked about.

Who looks at all at once: `requests.all_requests`; what becomes of one says `requests.settling`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from lemming.capabilities.requests.deadlines import last_tick_for
from lemming.capabilities.requests.settling import (
    RequestEvent,
    RequestFacts,
    cut_off_by,
    events_of,
    is_parent,
    opened_by,
    place_of,
    settle,
    targets_in,
)
from lemming.capabilities.requests.view import Place, RequestView
from lemming.kernel.mail.references import name_in
from lemming.kernel.mail.visibility import Mail
from lemming.kernel.messages import EntryName, OutboxEntry, names_of

Moving = Callable[[str, int], Iterable[tuple[EntryName, OutboxEntry]]]
"""Yields what may move or end a request that an author wrote since a tick."""
DEEPEST = 32  # what was asked for what is in the payloads, and those may make a circle
"""So many requests are looked at, each of which was asked for the next one."""


class KnownRequest(NamedTuple):
    """A request as it stands, the events that led to it, and where it ended; None: it is open."""

    view: RequestView
    events: list[RequestEvent]
    ended: Place | None

    def is_over_for(self, holder: str) -> bool:
        """Return whether nobody waits for a holder's answer any more: it is given, or not wanted."""
        if self.ended or self._was_handed_to(holder):
            return self.ended is not None
        if any(it.does == "answers" and it.entry.agent == holder for it in self.events):
            return True
        return self.view.was_held_by(holder) and holder not in self.view.holders

    def _was_handed_to(self, holder: str) -> bool:
        """Return whether a holder owes an answer for what was handed on to it, whatever it said before."""
        return any(share.holder == holder and share.hops for share in self.view.open_shares)


class KnownRequests:
    """The requests that an agent may know of in a tick; each is looked at once."""

    def __init__(self, mail: Mail, moving: Moving) -> None:
        self._mail, self._moving = mail, moving
        last_tick_of = partial(last_tick_for, mail.org, people=mail.persons, now=mail.tick)
        self._facts = RequestFacts(mail.resumes, mail.persons, mail.named, mail.tick, mail.at, last_tick_of)
        self._place = partial(place_of, mail.rank, mail.persons)
        self._known: dict[str, KnownRequest] = {}

    def of(self, entry: OutboxEntry) -> KnownRequest:
        """Return the request that an entry opens, or hands on."""
        return self._of(entry, 0)

    def _of(self, entry: OutboxEntry, depth: int) -> KnownRequest:
        if entry.identity not in self._known:
            self._known[entry.identity] = self._fold(entry, depth)
        return self._known[entry.identity]

    def _fold(self, entry: OutboxEntry, depth: int) -> KnownRequest:
        opening = self._opening(entry)
        view = opened_by(next(iter(names_of([opening.identity]))), opening, self._facts)
        events = self._events(view, {entry.id, entry.identity, opening.id, opening.identity})
        return KnownRequest(view, events, settle(view, events, self._facts, self._cut_off(view, depth)))

    def _opening(self, entry: OutboxEntry) -> OutboxEntry:
        """Return the entry that opened what this one hands on; where none did, itself, as its asker's."""
        moved = name_in(entry.payload.get("hands_on"))
        if not moved:
            return entry
        if found := self._found(moved, entry):
            return found
        owed = name_in(entry.payload.get("owed_to"))
        return replace(entry, agent=owed) if owed in self._mail.named else entry

    def _events(self, view: RequestView, names: Collection[str]) -> list[RequestEvent]:
        """Return what was done to a request that goes by these names, in the order of the entries."""
        events: list[RequestEvent] = []
        pending, seen = [*view.targets], {*view.targets}
        for holder in pending:
            for event in self._events_by(holder, view.tick, names, ("answers", "hands_on")):
                events.append(event)
                further = targets_in(event.entry, self._facts.known) if event.does == "hands_on" else ()
                pending += (it for it in further if it not in seen)
                seen.update(further)
        for author in sorted({view.asker, *self._mail.persons} & self._mail.named):
            events += self._events_by(author, view.tick, names, ("cancels",))
        return sorted(events, key=lambda it: it.place)

    def _events_by(
        self, author: str, tick: int, names: Collection[str], does: Collection[str]
    ) -> Iterator[RequestEvent]:
        for name, entry in self._moving(author, tick):
            for event in events_of(self._place(name), entry):
                if event.does in does and event.about in names:
                    yield event

    def _cut_off(self, view: RequestView, depth: int) -> Place | None:
        """Return where that ended which a request was asked for; None: it has not."""
        opening, asked = view.entry, view.entry.payload.get("asked")
        parent = name_in(opening.payload.get("parent"))
        if not parent and isinstance(asked, dict):
            parent = name_in(asked.get("parent"))
        if not parent or depth >= DEEPEST:
            return None
        if found := self._found(parent, opening):
            known = self._of(found, depth + 1)
            if not is_parent(known.view, view, self._place):
                return None
            return cut_off_by(known.view, known.events, known.ended, opening.agent)
        by_asker = self._events_by(opening.agent, opening.tick, {parent}, ("answers",))
        return min((it.place for it in by_asker), default=None)

    def _found(self, reference: str, later: OutboxEntry) -> OutboxEntry | None:
        """Return the request that a later entry refers to; None where it is not there any more."""
        for name in self._earlier(reference, later):
            entry = self._mail.read(name)
            if not isinstance(entry, OutboxEntry) or entry.kind != "request" or "hands_on" in entry.payload:
                continue
            if reference in (entry.id, entry.identity):
                return entry
        return None

    def _earlier(self, reference: str, later: OutboxEntry) -> Iterator[EntryName]:
        """Yield the entries of that id, up to a later one's tick; first of who is likely to have asked."""
        mail, path = self._mail, later.payload.get("path")
        above = [it for it in path if isinstance(it, str)] if isinstance(path, list) else []
        likely = [name_in(later.payload.get("owed_to")), *reversed(above), *sorted(mail.persons)]
        id_ = reference.rpartition("_")[2]
        for author in dict.fromkeys([*(it for it in likely if it in mail.named), *sorted(mail.agents)]):
            names = mail.past(author)
            yield from (name for name in reversed(names.all[: names.after(later.tick)]) if name.id == id_)


def moving_in(mail: Mail, names: Iterable[EntryName]) -> Iterator[tuple[EntryName, OutboxEntry]]:
    """Yield those of some entries that may answer a request, hand it on or cancel it."""
    for name in names:
        found = mail.read(name)
        if isinstance(found, OutboxEntry) and (
            found.kind in ("response", "status") or "hands_on" in found.payload
        ):
            yield name, found


def is_awaited(mail: Mail, entry: OutboxEntry, unshown: Collection[str], persons: Mapping[str, bool]) -> bool:
    """Return whether an entry is an open request, or an answer that its asker has not seen.

    `unshown`: agents that were not shown it; `persons`: those who may read it, each with whether not.
    """
    named = entry.targets.intersection(persons)
    if entry.kind == "response":
        return not entry.targets.isdisjoint(unshown) or any(persons[name] for name in named)
    if entry.kind != "request" or (entry.targets.isdisjoint(unshown) and not named):
        return False

    def moving(author: str, tick: int) -> Iterator[tuple[EntryName, OutboxEntry]]:
        names = mail.past(author)
        return moving_in(mail, names.all[names.after(tick - 1) :])

    known = KnownRequests(mail, moving).of(entry)
    if not known.ended and not entry.targets.isdisjoint(unshown):
        return True
    return any(not known.is_over_for(name) for name in named)
