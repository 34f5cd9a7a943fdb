"""Resolve single requests as an agent may see them in a turn, from the entries that concern each request.

`lemming.obligations.request_outcome` builds all requests at once, and applies the events for both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import NamedTuple

from lemming.kernel.inboxes.reader_view import ReaderView
from lemming.kernel.inboxes.turn_agenda import RequestOutcomes
from lemming.kernel.inboxes.visibility import MailView
from lemming.kernel.journal.open_requests import OpenRequest, SubRequest
from lemming.kernel.messages import EntryName, OutboxEntry, parse_identities
from lemming.kernel.obligations.request_payloads import parse_reference, parse_references
from lemming.obligations.decisions import find_approval_outcomes, is_approval_request
from lemming.obligations.request_deadlines import Position, extend_deadlines, get_extended_last_tick
from lemming.obligations.request_outcome import (
    RequestEvent,
    RequestEventContext,
    apply_events,
    find_cutoff,
    get_events,
    get_position,
    get_targets,
    is_parent_request,
    request_from_entry,
)
from lemming.obligations.request_view import RequestView

AffectingEntries = Callable[[str, int], Iterable[tuple[EntryName, OutboxEntry]]]
"""Yields an author's entries since a tick that may move or end a request."""
MAX_DEPTH = 32  # the parent of a request is in the payloads, and those may form a cycle
"""Maximum length of a chain of sub-requests."""


class ResolvedRequest(NamedTuple):
    """A request, its events, and the position at which the request ended (None while open)."""

    view: RequestView
    events: list[RequestEvent]
    end_position: Position | None

    def is_resolved_for_assignee(self, assignee: str) -> bool:
        """Return True if an assignee's answer is given or no longer wanted."""
        # An open handoff owes an answer, regardless of earlier answers.
        is_handed = any(share.assignee == assignee and share.handoffs for share in self.view.open_assignments)
        if self.end_position or is_handed:
            return self.end_position is not None
        if any(event.action == "answers" and event.entry.agent == assignee for event in self.events):
            return True
        return self.view.was_assignee(assignee) and assignee not in self.view.assignees


class RequestResolver:
    """The requests that an agent may see in a tick, each resolved once."""

    def __init__(self, mail: MailView, affecting_entries: AffectingEntries) -> None:
        self._mail, self.affecting_entries = mail, affecting_entries
        last_tick_of = partial(get_extended_last_tick, mail.org, people=mail.persons, current_tick=mail.tick)
        self._facts = RequestEventContext(
            mail.resumes, mail.persons, mail.known_names, mail.tick, mail.at, last_tick_of
        )
        self._get_position = partial(get_position, mail.rank, mail.persons)
        self._resolved: dict[str, ResolvedRequest] = {}

    def resolve(self, entry: OutboxEntry, depth: int = 0) -> ResolvedRequest:
        """Return the request opened or handed off by an entry. `depth`: number of sub-requests above."""
        if entry.identity not in self._resolved:
            opening = self._opening_entry(entry)
            view = request_from_entry(next(iter(parse_identities([opening.identity]))), opening, self._facts)
            events = self._collect_events(view, {entry.id, entry.identity, opening.id, opening.identity})
            end_position = apply_events(view, events, self._facts, self._find_cutoff(view, depth))
            self._resolved[entry.identity] = ResolvedRequest(view, events, end_position)
        return self._resolved[entry.identity]

    def _opening_entry(self, entry: OutboxEntry) -> OutboxEntry:
        """Return the opening entry of a handed-off request; without any, the entry itself in the asker's name."""
        moved_reference = parse_reference(entry.payload.get("hands_on"))
        if not moved_reference:
            return entry
        if original := self._find_request(moved_reference, entry):
            return original
        owed_to = parse_reference(entry.payload.get("owed_to"))
        return replace(entry, agent=owed_to) if owed_to in self._mail.known_names else entry

    def _collect_events(self, view: RequestView, names: Collection[str]) -> list[RequestEvent]:
        """Return the events of a request with these names, in the order of the entries."""
        events: list[RequestEvent] = []
        pending, visited = [*view.targets], {*view.targets}
        for assignee in pending:
            for event in self._iter_author_events(assignee, view.tick, names, ("answers", "hands_on")):
                events.append(event)
                new_targets = get_targets(event.entry, self._facts.all_names) if event.action == "hands_on" else ()
                pending += (item for item in new_targets if item not in visited)
                visited.update(new_targets)
        for author in sorted({view.asker, *self._mail.persons} & self._mail.known_names):
            events += self._iter_author_events(author, view.tick, names, ("cancels",))
        return sorted(events, key=lambda item: item.position)

    def _iter_author_events(
        self, author: str, tick: int, names: Collection[str], does: Collection[str]
    ) -> Iterator[RequestEvent]:
        for name, entry in self.affecting_entries(author, tick):
            for event in get_events(self._get_position(name), entry):
                if event.action in does and event.reference in names:
                    yield event

    def _find_cutoff(self, view: RequestView, depth: int) -> Position | None:
        """Return the position at which the parent request ended, or None if the parent is open."""
        opening, asked_block = view.entry, view.entry.payload.get("asked")
        parent = parse_reference(opening.payload.get("parent"))
        if not parent and isinstance(asked_block, dict):
            parent = parse_reference(asked_block.get("parent"))
        if not parent or depth >= MAX_DEPTH:
            return None
        if parent_entry := self._find_request(parent, opening):
            resolved_parent = self.resolve(parent_entry, depth + 1)
            if not is_parent_request(resolved_parent.view, view, self._get_position):
                return None
            return find_cutoff(*resolved_parent, opening.agent)
        asker_events = self._iter_author_events(opening.agent, opening.tick, {parent}, ("answers",))
        return min((event.position for event in asker_events), default=None)

    def _find_request(self, reference: str, later: OutboxEntry) -> OutboxEntry | None:
        """Return the request named in a later entry, or None if the request no longer exists."""
        mail, ident = self._mail, reference.rpartition("_")[2]
        owed_to = parse_reference(later.payload.get("owed_to"))
        likely_authors = [owed_to, *reversed(list_ancestors(later)), *sorted(mail.persons)]
        authors = [*(author for author in likely_authors if author in mail.known_names), *sorted(mail.agents)]
        for author in dict.fromkeys(authors):
            names = mail.past_names(author)
            for name in reversed(names.all[: names.next_index(later.tick)]):
                entry = mail.read(name) if name.id == ident else None
                if not isinstance(entry, OutboxEntry) or entry.kind != "request" or "hands_on" in entry.payload:
                    continue
                if reference in (entry.id, entry.identity):
                    return entry
        return None


def list_ancestors(entry: OutboxEntry) -> list[str]:
    """Return the agents waiting for a request by the payload, the nearest last."""
    path = entry.payload.get("path")
    return [name for name in path if isinstance(name, str)] if isinstance(path, list) else []


def iter_affecting_entries(mail: MailView, names: Iterable[EntryName]) -> Iterator[tuple[EntryName, OutboxEntry]]:
    """Yield the entries with a possible answer, handoff or cancellation."""
    for name in names:
        entry = mail.read(name)
        if isinstance(entry, OutboxEntry) and (entry.kind in ("response", "status") or "hands_on" in entry.payload):
            yield name, entry


def is_awaited_entry(mail: MailView, entry: OutboxEntry, unshown: Collection[str], persons: Mapping[str, bool]) -> bool:
    """Return True for an open request, or an answer unseen by the asker.

    `unshown`: agents without the entry in any prompt. `persons`: the persons who may read the entry, with True
    for each who has not.
    """
    addressed_persons = entry.targets.intersection(persons)
    if entry.kind == "response":
        return not entry.targets.isdisjoint(unshown) or any(persons[name] for name in addressed_persons)
    if entry.kind != "request" or (entry.targets.isdisjoint(unshown) and not addressed_persons):
        return False

    def author_entries(author: str, tick: int) -> Iterator[tuple[EntryName, OutboxEntry]]:
        names = mail.past_names(author)
        return iter_affecting_entries(mail, names.all[names.next_index(tick - 1) :])

    resolved = RequestResolver(mail, author_entries).resolve(entry)
    if not resolved.end_position and not entry.targets.isdisjoint(unshown):
        return True
    return any(not resolved.is_resolved_for_assignee(name) for name in addressed_persons)


class SubRequestTracker:
    """The sub-requests of an agent's earlier turns, with their outcomes in the current tick."""

    def __init__(
        self, view: ReaderView, name: str, open_requests: Sequence[OpenRequest], resolver: RequestResolver
    ) -> None:
        self._view, self._mail, self._name = view, view.mail, name
        self._open_requests, self._resolver = open_requests, resolver

    @cached_property
    def open_requests(self) -> list[OpenRequest]:
        """The agent's open requests, with the current outcomes of their sub-requests."""
        open_requests = []
        for open_request in self._open_requests:
            request = load_entry(self._mail, open_request.request)
            is_closed = request is None or self._resolver.resolve(request).is_resolved_for_assignee(self._name)
            is_open = not (open_request.request and is_closed)
            if is_open and not open_request.is_untouched:
                open_requests.append(open_request.with_outcomes(self._outcomes(open_request)))
        return open_requests

    def _outcomes(self, open_request: OpenRequest) -> RequestOutcomes:
        """Return the outcomes of ended sub-requests."""
        if any(sub_request.not_after for sub_request in open_request.open_sub_requests):
            # time alone may end it, so the agent must not be remembered as one with nothing new
            self._mail.changing.add(self._name)
        open_request = extend_deadlines(self._mail, open_request)
        outcomes = {
            sub_request.key: outcome
            for sub_request in open_request.open_sub_requests
            if not sub_request.held and (outcome := self._outcome(sub_request))
        }
        if any(sub_request.held for sub_request in open_request.open_sub_requests):
            mail, persons = self._mail, self._mail.persons
            outcomes |= find_approval_outcomes(
                open_request,
                mail.tick,
                mail.at,
                partial(load_entry, mail),
                lambda author, tick: (entry for _, entry in self._resolver.affecting_entries(author, tick)),
                lambda person: person in persons and self._can_exchange(person),
            )
        return outcomes

    @cached_property
    def _awaited_ids(self) -> frozenset[str]:
        """The requests with an awaited answer, by id and by identity."""
        identities = [sub_request.request for open_request in self.open_requests for sub_request in open_request.asked]
        return frozenset(identities).union(name.id for name in parse_identities(identities))

    def is_awaited(self, entry: OutboxEntry) -> bool:
        """Return True if an entry answers a sub-request of a continuing request."""
        return not self._awaited_ids.isdisjoint(parse_references(entry.payload.get("reply_to")))

    def _outcome(self, sub_request: SubRequest) -> tuple[str, str] | None:
        """Return the outcome of a sub-request and the identity of the answer, or None while open."""
        entry = load_entry(self._mail, sub_request.request)
        if entry is None or not self._can_exchange(sub_request.to):  # no answer of its would be seen
            return "failed", ""
        resolved = self._resolver.resolve(entry)
        for assignment in resolved.view.assignments:
            if assignment.target == sub_request.to and assignment.end and assignment.answer:
                return assignment.end, assignment.answer.identity
        return (resolved.view.end, "") if resolved.view.end in ("cancelled", "expired") else None

    def _can_exchange(self, other: str) -> bool:
        """Return True if the agent and another agent can read each other."""
        resume = self._mail.resumes.get(other)
        if resume is None:
            return other in self._mail.known_names  # it is broken, and will be mended
        return resume.may_read(self._name) and self._view.can_see(other)

    def is_late(self, answer: OutboxEntry) -> bool:
        """Return True for an answer to a sub-request of a closed request."""
        references = parse_references(answer.payload.get("reply_to"))
        return bool(references) and not self.is_awaited(answer) and all(map(self._is_own_reference, references))

    def _is_own_reference(self, reference: str) -> bool:
        """Return True if a reference names an earlier sub-request of the agent."""
        name = self._own_entries.get(reference.rpartition("_")[2])
        entry = self._mail.read(name) if name else None
        return isinstance(entry, OutboxEntry) and ("parent" in entry.payload or is_approval_request(entry.payload))

    @cached_property
    def _own_entries(self) -> dict[str, EntryName]:
        return {name.id: name for name in self._mail.past_names(self._name).all}


def load_entry(mail: MailView, identity: str) -> OutboxEntry | None:
    """Return the entry named author/tick_id, or None without a readable entry."""
    entry = next((mail.read(name) for name in parse_identities([identity])), None) if identity else None
    return entry if isinstance(entry, OutboxEntry) else None
