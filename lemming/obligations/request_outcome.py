"""Requests from entries: build all requests as one reader sees them, and apply events to a request (docs/requests.md).

Events are answers, handoffs and cancellations. `build_requests` builds all requests;
`lemming.capabilities.requests.request_resolver` those of an agent's own turn. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from lemming.kernel.messages import EntryName, OutboxEntry
from lemming.kernel.obligations.request_payloads import (
    get_last_tick,
    parse_deadline_time,
    parse_reference,
    parse_references,
    required_answers,
)
from lemming.kernel.org.resume import Agent
from lemming.obligations.decisions import decision_sort_key, is_approval_request, parse_decision
from lemming.obligations.request_deadlines import Position, expiry_position, is_expired, is_in_time
from lemming.obligations.request_view import AllRequests, Assignment, End, Handoff, RequestView

UNTIL = "until"
"""Key of a request's goal, and of the receipts in its answer."""
PERSON_RANK = -1  # an author without a turn in a tick wrote before its turns

LastTick = Callable[[OutboxEntry], int | None]


class RequestEventContext(NamedTuple):
    """The context of request events: agents, persons, broken resumes, and the current tick and time."""

    agents: Mapping[str, Agent]
    people: frozenset[str]
    all_names: frozenset[str]
    tick: int
    at: str
    last_tick_of: LastTick

    def may_read(self, reader: str, author: str) -> bool:
        """Return True if an agent's resume permits reading an author's entries."""
        agent = self.agents.get(reader)
        return agent is not None and agent.may_read(author)


class RequestEvent(NamedTuple):
    """An entry about an earlier entry, and the effect on the earlier entry."""

    position: Position
    reference: str
    action: str
    entry: OutboxEntry


def get_position(ranks: Mapping[str, int], people: frozenset[str], name: EntryName) -> Position:
    """Return the position of an entry in the order of all entries."""
    rank = PERSON_RANK if name.author in people else ranks.get(name.author, PERSON_RANK)
    return name.tick, rank, name.number, name.id


def request_from_entry(name: EntryName, entry: OutboxEntry, facts: RequestEventContext) -> RequestView:
    """Return the request opened by an entry, in the initial state."""
    targets = get_targets(entry, facts.all_names)
    return RequestView(
        name=name,
        entry=entry,
        assignments=[Assignment(target, target, entry.tick) for target in targets],
        required_answers=required_answers(entry.payload, len(targets)),
        deadline=facts.last_tick_of(entry),
        not_after=parse_deadline_time(entry.payload),
    )


def get_targets(entry: OutboxEntry, all_names: Iterable[str]) -> list[str]:
    """Return the existing agents addressed by an entry, without the author, in the entry's order."""
    if not entry.targets:
        return []
    target = entry.payload["target"]
    listed = target if isinstance(target, list) else [target]
    names = dict.fromkeys(name.strip().lower() for name in listed if isinstance(name, str))
    existing = all_names if isinstance(all_names, frozenset) else frozenset(all_names)
    return [name for name in names if name in existing and name != entry.agent]


def get_events(position: Position, entry: OutboxEntry) -> list[RequestEvent]:
    """Return the events of an entry at a position, one for each reference."""
    match entry.kind:
        case "response":
            key, does = "reply_to", "answers"
        case "request":
            key, does = "hands_on", "hands_on"
        case "status":
            key, does = "cancels", "cancels"
        case _:
            return []
    return [RequestEvent(position, about, does, entry) for about in parse_references(entry.payload.get(key))]


def apply_events(
    request: RequestView, events: Iterable[RequestEvent], facts: RequestEventContext, cutoff: Position | None
) -> Position | None:
    """Apply events to a request; return the position of its end, or None. `cutoff`: where the parent request ended."""
    expiry_at = expiry_position(request.deadline)
    last_position = min((position for position in (expiry_at, cutoff) if position), default=None)
    if is_approval_request(request.entry.payload):  # among decisions of persons, the first decision counts
        events = sorted(events, key=lambda event: decision_sort_key(event.entry))
    for event in events:
        if last_position and event.position > last_position:
            continue
        if event.action == "answers" and not is_in_time(event.entry, None, request.not_after, facts.at):
            continue
        if _apply_event(request, event, facts):
            request.closed_by, request.end_tick = event.entry, event.entry.tick
            return event.position
    is_pending = last_position is None or last_position[0] > facts.tick
    if is_pending and is_expired(None, request.not_after, facts.tick, facts.at):
        last_position = expiry_at = expiry_position(facts.tick - 1)
    if last_position is None or last_position[0] > facts.tick:
        return None
    request.end = "expired" if last_position == expiry_at else "cancelled"
    request.end_tick = last_position[0]
    return last_position


def is_parent_request(parent: RequestView, child: RequestView, get_position: Callable[[EntryName], Position]) -> bool:
    """Return True if `parent` precedes `child` and was assigned to the child's asker."""
    return get_position(parent.name) < get_position(child.name) and parent.was_assignee(child.asker)


def find_cutoff(
    parent: RequestView, events: Iterable[RequestEvent], end_position: Position | None, asker: str
) -> Position | None:
    """Return the position after which an agent's sub-requests are no longer wanted, or None.

    `events`: the events applied to the parent request. `end_position`: the end of the parent, or None.
    """
    answers = [share.answer for share in parent.assignments if share.answer and share.answer.agent == asker]
    answer_positions = (event.position for event in events if any(event.entry is answer for answer in answers))
    return min((*answer_positions, *([end_position] if end_position else ())), default=None)


def _apply_event(request: RequestView, event: RequestEvent, facts: RequestEventContext) -> bool:
    """Apply an event to an open request. Return True if the event ended the request."""
    entry = event.entry
    if event.action == "cancels":
        if _can_cancel(request, entry.agent, facts):
            request.end = "cancelled"
        return not request.is_open
    # Whoever was handed a second one of them owes one answer to both.
    assignments = [assignment for assignment in request.open_assignments if assignment.assignee == entry.agent]
    is_approval = is_approval_request(request.entry.payload)
    # Handoffs and some answers do not decide about a pending action.
    decides = event.action == "answers" and parse_decision(entry.payload) is not None
    if not assignments or (is_approval and not (decides and _hears(request, entry.agent, facts))):
        return False
    if event.action == "answers" and _lacks_receipts(request, entry, facts):
        return False
    for assignment in assignments:
        if event.action == "hands_on":
            targets = get_targets(entry, facts.all_names)
            if len(targets) == 1:
                assignment.handoffs.append(Handoff(entry.tick, assignment.assignee, targets[0], entry))
                assignment.assignee, assignment.since = targets[0], entry.tick
        else:
            assignment.end, assignment.answer = _response_outcome(entry), entry
    if event.action == "hands_on":
        return False
    request.end = _response_outcome(entry) if is_approval else _outcome_of_assignments(request)
    return not request.is_open


def _lacks_receipts(request: RequestView, answer: OutboxEntry, facts: RequestEventContext) -> bool:
    """Return True for an agent's answer that nobody has checked, to a request with a goal. A failure needs no check."""
    is_checked = UNTIL in answer.payload or answer.agent in facts.people
    return UNTIL in request.entry.payload and not is_checked and _response_outcome(answer) == "answered"


def _hears(request: RequestView, person: str, facts: RequestEventContext) -> bool:
    """Return True if the asker and a person read each other: the asker's turn sees no other decision."""
    asker = request.asker
    return asker not in facts.agents or (facts.may_read(asker, person) and facts.may_read(person, asker))


def _can_cancel(request: RequestView, author: str, facts: RequestEventContext) -> bool:
    if author == request.asker:
        return True
    if is_approval_request(request.entry.payload):
        return author in request.assignees and _hears(request, author, facts)
    return author in facts.people and any(facts.may_read(assignee, author) for assignee in request.assignees)


def _response_outcome(response: OutboxEntry) -> End:
    match response.payload.get("status"):
        case "failed":
            return "failed"
        case "refused":
            return "refused"
    return "answered"


def _outcome_of_assignments(request: RequestView) -> End | None:
    """Return the outcome of a request from the outcomes of its targets, or None while open."""
    outcomes = [assignment.end for assignment in request.assignments]
    if outcomes.count("answered") >= request.required_answers:
        return "answered"
    return None if None in outcomes else "failed" if "failed" in outcomes else "refused"


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
    views = (
        request_from_entry(name, entry, facts)
        for name, entry in ordered
        if entry.kind == "request" and "hands_on" not in entry.payload
    )
    # Without a recipient besides its author it is no request.
    requests = AllRequests({request.identity: request for request in views if request.assignments}, tick)
    events: dict[str, list[RequestEvent]] = {}
    for name, entry in ordered:
        for event in get_events(to_position(name), entry):
            if match := requests.resolve(event.reference):
                events.setdefault(match.identity, []).append(event)
    ended_at: dict[str, Position] = {}
    # in order: a parent is settled before its sub-requests
    for request in requests:
        cutoff, parent = None, requests.resolve(parse_reference(request.entry.payload.get("parent")))
        if parent is not None and is_parent_request(parent, request, to_position):
            request.parent = parent.identity
            parent.children.append(request.identity)
            parent_history = events.get(parent.identity, ()), ended_at.get(parent.identity)
            cutoff = find_cutoff(parent, *parent_history, request.asker)
        if end_position := apply_events(request, events.get(request.identity, ()), facts, cutoff):
            ended_at[request.identity] = end_position
    return requests
