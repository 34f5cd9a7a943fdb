"""Views of requests, built from entries and never stored. Pure: docs/requests.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

from lemming.kernel.journal.open_requests import SubRequest
from lemming.kernel.messages import EntryName, OutboxEntry
from lemming.kernel.obligations.request_payloads import normalize_reference

End = Literal["answered", "failed", "refused", "cancelled", "expired"]


class Handoff(NamedTuple):
    """A handoff of a request: the tick, the two agents, and the entry."""

    tick: int
    by: str
    to: str
    entry: OutboxEntry


@dataclass
class Assignment:
    """The part of a request owed by one target: the current assignee, the starting tick, and the outcome."""

    target: str
    assignee: str
    since: int
    handoffs: list[Handoff] = field(default_factory=list)
    end: End | None = None
    answer: OutboxEntry | None = None


@dataclass
class RequestView:
    """A request as built from entries. `identity`, `parent` and `children` have the form `author/TICK_ID`.

    `required_answers`: the number of answers needed. `deadline` is the last tick and `not_after` the last time for an
    answer. `end` is None while the request is open. Afterwards `end_tick` is the tick of the outcome, and `closed_by`
    the entry that ended the request: None after expiry or after a cancellation with the parent.
    """

    name: EntryName
    entry: OutboxEntry
    assignments: list[Assignment]
    required_answers: int = 1
    deadline: int | None = None
    parent: str | None = None
    children: list[str] = field(default_factory=list)
    end: End | None = None
    end_tick: int | None = None
    closed_by: OutboxEntry | None = None
    not_after: str = ""

    @property
    def id(self) -> str:
        """The id of the opening entry."""
        return self.entry.id

    @property
    def identity(self) -> str:
        """The unique identity of the request."""
        return self.name.identity

    @property
    def asker(self) -> str:
        """The author of the request, to whom the answer is owed."""
        return self.entry.agent

    @property
    def tick(self) -> int:
        """The tick of the opening entry."""
        return self.entry.tick

    @property
    def text(self) -> str:
        """The text of the request, empty if the payload has no text."""
        return _text_or_empty(self.entry.payload.get("text"))

    @property
    def conversation(self) -> str:
        """The name of the conversation, empty if the request belongs to none."""
        return _text_or_empty(self.entry.payload.get("conversation"))

    @property
    def not_before(self) -> str:
        """The time before which the request stays hidden, empty for no delay."""
        return self.entry.not_before

    @property
    def targets(self) -> tuple[str, ...]:
        """The agents asked."""
        return tuple(assignment.target for assignment in self.assignments)

    @property
    def is_open(self) -> bool:
        """True until the request has an outcome."""
        return self.end is None

    @property
    def open_assignments(self) -> list[Assignment]:
        """The assignments without an outcome, empty after the request has ended."""
        return [assignment for assignment in self.assignments if assignment.end is None] if self.is_open else []

    @property
    def assignees(self) -> tuple[str, ...]:
        """The agents owing an answer, empty after the request has ended."""
        return tuple(assignment.assignee for assignment in self.open_assignments)

    @property
    def handoffs(self) -> list[Handoff]:
        """All handoffs of the request, in order."""
        handoffs = (handoff for assignment in self.assignments for handoff in assignment.handoffs)
        return sorted(handoffs, key=lambda handoff: handoff.tick)

    @property
    def answers(self) -> list[OutboxEntry]:
        """The entries that closed the assignments, in the order of the targets."""
        return [assignment.answer for assignment in self.assignments if assignment.answer is not None]

    @property
    def has_default(self) -> bool:
        """True if the request defines an answer for the case of expiry."""
        return "default" in self.entry.payload

    @property
    def default_answer(self) -> Any:
        """The answer used on expiry, or None without a default."""
        return self.entry.payload.get("default")

    @property
    def schema(self) -> dict[str, Any] | None:
        """The JSON Schema of an answer, or None if any answer is valid."""
        answer_schema = self.entry.payload.get("schema")
        return answer_schema if isinstance(answer_schema, dict) else None

    def was_assignee(self, agent: str) -> bool:
        """Return True if the request was ever assigned to an agent."""
        return any(
            agent == assignment.target or any(agent == handoff.to for handoff in assignment.handoffs)
            for assignment in self.assignments
        )

    def age_ticks(self, tick: int) -> int:
        """Return the number of ticks for which the request was open. `tick` is the next tick to run."""
        return max(0, (tick if self.end_tick is None else self.end_tick) - self.tick)


class AllRequests:
    """All requests of an organisation, the oldest first. `tick` is the next tick to run."""

    def __init__(self, requests: dict[str, RequestView], tick: int) -> None:
        self.by_identity, self.tick = requests, tick
        self._by_id: dict[str, list[RequestView]] = {}
        for request in requests.values():
            self._by_id.setdefault(request.id, []).append(request)

    def __iter__(self) -> Iterator[RequestView]:
        return iter(self.by_identity.values())

    def __len__(self) -> int:
        return len(self.by_identity)

    def resolve(self, reference: str) -> RequestView | None:
        """Return the request named in a payload, or None for no match or several matches."""
        if "/" in reference:
            return self.by_identity.get(reference)
        matches = self._by_id.get(reference, ())
        return matches[0] if len(matches) == 1 else None  # an id that a person gave may come twice

    def find_served(self, identity: str) -> RequestView | None:
        """Return the request that a turn served, by the entry that made the request or handed it on, or None."""
        return self.by_identity.get(identity) or self._by_handoff.get(identity)

    @cached_property
    def _by_handoff(self) -> dict[str, RequestView]:
        """The requests by the entries that handed them on."""
        return {handoff.entry.identity: request for request in self for handoff in request.handoffs}

    def get_reference(self, request: RequestView) -> str:
        """Return the name of a request for payloads: the id if unique, else the identity."""
        return request.id if len(self._by_id[request.id]) == 1 else request.identity

    @property
    def unresolved_requests(self) -> list[RequestView]:
        """The requests without an outcome."""
        return [request for request in self if request.is_open]

    @property
    def next_deadline(self) -> int | None:
        """The earliest deadline of an open request, or None without a deadline."""
        deadlines = (request.deadline for request in self.unresolved_requests)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    @property
    def next_moment(self) -> str:
        """The earliest `not_after` of an open request, empty if no open request has a time limit."""
        return min(filter(None, (request.not_after for request in self.unresolved_requests)), default="")

    @property
    def ids(self) -> list[str]:
        """All ids."""
        return list(self._by_id)

    def find_matches(self, reference: str) -> list[RequestView]:
        """Return the requests matching an id, a prefix of an id, or an identity `author/TICK_ID`."""
        name = reference.strip()
        if "/" in name:
            match = self.by_identity.get(normalize_reference(name))
            return [match] if match else []
        if name in self._by_id:
            return self._by_id[name]
        matches = (requests for ident, requests in self._by_id.items() if name and ident.startswith(name))
        return [request for requests in matches for request in requests]

    def iter_tree(self, root: RequestView) -> list[tuple[int, RequestView]]:
        """Return a request and all descendants with their depths, in the order of asking."""
        tree, pending = [], [(0, root)]
        while pending:
            depth, request = pending.pop()
            tree.append((depth, request))
            pending += [(depth + 1, self.by_identity[child]) for child in reversed(request.children)]
        return tree

    def get_root(self, request: RequestView) -> RequestView:
        """Return the root request of a tree."""
        while request.parent is not None:
            request = self.by_identity[request.parent]
        return request


def _text_or_empty(value: object) -> str:
    return value if isinstance(value, str) else ""


def describe_deadline(sub_request: SubRequest) -> str:
    """Return the deadline of a sub-request as text."""
    last_tick = "" if sub_request.until is None else f"tick {sub_request.until}"
    return " or ".join(filter(None, (last_tick, sub_request.not_after)))
